// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/rope/rope.h"

#include <cmath>
#include <numbers>

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

// Rows of one session from `position` on.
Segment Piece(size_t first, size_t tokens, uint64_t position) {
  Segment segment;
  segment.first_token = first;
  segment.tokens = tokens;
  segment.position = position;
  return segment;
}

RopeConfig Plain(size_t rotary_dim, float theta = 10000.0f) {
  RopeConfig config;
  config.rotary_dim = rotary_dim;
  config.theta = theta;
  return config;
}

void Rotate(const RopeConfig& config, const std::vector<Segment>& segments, FloatMatrix x,
            size_t heads, size_t stride, size_t threads = 2) {
  ThreadPool pool(threads);
  Workspace workspace;
  const Rope rope(config);
  ApplyRope(rope.Angles(segments, x.rows, workspace, pool), x, heads, stride, pool);
}

// fp64 straight from the definition; the angle itself is fp32, as the field has it.
double Expected(const float* head, size_t rotary, size_t i, float theta, double position) {
  if (i >= rotary) return head[i];
  const size_t half = rotary / 2, pair = i % half;
  const double frequency = std::pow(double{theta}, -2.0 * double(pair) / double(rotary));
  const double cosine = std::cos(position * frequency), sine = std::sin(position * frequency);
  return i < half ? head[i] * cosine - head[i + half] * sine
                  : head[i] * cosine + head[i - half] * sine;
}

TEST(RopeTest, RotatesTheHeadsFirstNumbersByTheirPosition) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kTokens = 40, kHeads = 3, kStride = 272;
  for (size_t rotary : {2, 6, 16, 24, 30, 64, 128, 256}) {
    TestMatrix x(kTokens, kHeads * kStride, 0, 16);
    x.Fill(RandomFloats(kTokens * kHeads * kStride, random));
    const std::vector<float> before = x.Values();
    Rotate(Plain(rotary), {Piece(0, 25, 7), Piece(25, 15, 100)}, x.view(), kHeads, kStride);
    for (size_t t = 0; t < kTokens; ++t) {
      const double position = t < 25 ? double(t + 7) : double(t - 25 + 100);
      for (size_t i = 0; i < kHeads * kStride; ++i) {
        const float* head = before.data() + t * kHeads * kStride + i / kStride * kStride;
        const double expected = Expected(head, rotary, i % kStride, 10000.0f, position);
        ASSERT_NEAR(x.view().row(t)[i], expected, 1e-4) << "rotary " << rotary << " at " << i;
        if (i % kStride >= rotary) {
          ASSERT_EQ(x.view().row(t)[i], head[i % kStride]);
        }
      }
    }
    EXPECT_TRUE(x.CanariesAlive());
  }
}

// Scores of rotated queries and keys depend on their distance alone.
TEST(RopeTest, ScoresDependOnDistance) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> head = RandomFloats(64, random), other = RandomFloats(64, random);
  const auto score = [&](uint64_t query, uint64_t key) {
    TestMatrix x(2, 64);
    std::copy(head.begin(), head.end(), x.view().row(0));
    std::copy(other.begin(), other.end(), x.view().row(1));
    Rotate(Plain(64), {Piece(0, 1, query), Piece(1, 1, key)}, x.view(), 1, 64);
    double sum = 0;
    for (size_t i = 0; i < 64; ++i) sum += double{x.view().row(0)[i]} * x.view().row(1)[i];
    return sum;
  };
  EXPECT_NEAR(score(9, 4), score(105, 100), 1e-4);
  EXPECT_GT(std::abs(score(9, 4) - score(9, 5)), 1e-3);
}

TEST(RopeTest, SplitsThreadsAndTargetsDoNotChangeBits) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> values = RandomFloats(300 * 4 * 80, random);
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    for (size_t threads : {1, 2, 3}) {
      for (size_t cut : {0, 1, 17, 128}) {
        TestMatrix x(300, 4 * 80);
        x.Fill(values);
        std::vector<Segment> segments = {Piece(cut, 300 - cut, 1000000 + cut)};
        if (cut > 0) segments.insert(segments.begin(), Piece(0, cut, 1000000));
        Rotate(Plain(40), segments, x.view(), 4, 80, threads);
        if (first.empty()) first = x.Values();
        EXPECT_TRUE(SameBits(x.Values(), first)) << target << " threads " << threads;
      }
    }
  });
}

TEST(RopeTest, LinearScalingStretchesEveryWavelength) {
  RopeConfig config = Plain(32, 500.0f);
  const std::vector<float> plain = InverseFrequencies(config);
  ASSERT_EQ(plain.size(), 16u);
  EXPECT_EQ(plain[0], 1.0f);
  EXPECT_NEAR(plain[8], 1 / std::sqrt(500.0), 1e-6);
  config.scaling = RopeScaling::kLinear;
  config.factor = 4.0f;
  const std::vector<float> scaled = InverseFrequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4.0f);
}

// Llama 3.1's numbers: head size 128, theta 500000, factor 8 over 8192 positions.
TEST(RopeTest, Llama3ScalingBlendsBetweenItsTwoWavelengths) {
  RopeConfig config = Plain(128, 500000.0f);
  const std::vector<float> plain = InverseFrequencies(config);
  config.scaling = RopeScaling::kLlama3;
  config.factor = 8.0f;
  const std::vector<float> scaled = InverseFrequencies(config);
  size_t kept = 0, stretched = 0, blended = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    const double smooth = std::clamp((8192 / wavelength - 1) / (4.0 - 1.0), 0.0, 1.0);
    EXPECT_NEAR(scaled[i], plain[i] * ((1 - smooth) / 8 + smooth), plain[i] * 1e-5) << i;
    ++(smooth == 1.0 ? kept : smooth == 0.0 ? stretched : blended);
  }
  EXPECT_GT(kept, 20u);
  EXPECT_GT(stretched, 20u);
  EXPECT_GT(blended, 3u);
}

void ExpectFrequencies(const RopeConfig& config, const std::vector<float>& expected) {
  const std::vector<float> frequencies = InverseFrequencies(config);
  ASSERT_EQ(frequencies.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(frequencies[i], expected[i], expected[i] * 2e-7) << i;
  }
}

// Numbers of transformers 5.23.
TEST(RopeTest, YarnBlendsAlongARamp) {
  RopeConfig config = Plain(16);
  config.scaling = RopeScaling::kYarn;
  config.factor = 4.0f;
  config.original_max_position = 512.0f;
  ExpectFrequencies(config, {1.0f, 0.25693506f, 0.0625f, 0.013834965f, 0.0025f, 0.00079056947f,
                             0.00025f, 7.905694656e-05f});
  config.whole_ramp = false;
  config.beta_fast = 16;
  config.beta_slow = 2;
  ExpectFrequencies(config, {1.0f, 0.31622776f, 0.0756644f, 0.010796109f, 0.0025f, 0.00079056947f,
                             0.00025f, 7.905694656e-05f});
}

// transformers 5.23 again.
TEST(RopeTest, LongRopeDividesEachFrequency) {
  RopeConfig config = Plain(8);
  config.scaling = RopeScaling::kLong;
  config.divisors = {1.0f, 1.5f, 2.0f, 4.0f};
  ExpectFrequencies(config, {1.0f, 0.06666667f, 0.005f, 0.00025f});
}

TEST(RopeTest, AnOddPeriodIsItsOwn) {
  RopeConfig config = Plain(4);
  config.period = 3;
  ExpectFrequencies(config, {1.0f, std::pow(10000.0f, -2.0f / 3.0f)});
}

TEST(RopeTest, TheAmplitudeMultipliesWhatIsRotated) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> values = RandomFloats(3 * 10, random);
  TestMatrix plain(3, 10), scaled(3, 10);
  plain.Fill(values);
  scaled.Fill(values);
  RopeConfig config = Plain(6);
  Rotate(config, {Piece(0, 3, 5)}, plain.view(), 1, 10);
  config.amplitude = 1.25f;
  Rotate(config, {Piece(0, 3, 5)}, scaled.view(), 1, 10);
  for (size_t i = 0; i < values.size(); ++i) {
    const float expected = plain.Values()[i] * (i % 10 < 6 ? 1.25f : 1.0f);
    EXPECT_NEAR(scaled.Values()[i], expected, 1e-5) << i;
  }
}

}  // namespace
}  // namespace rivulet
