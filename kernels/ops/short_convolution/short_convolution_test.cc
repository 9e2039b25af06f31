// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/short_convolution/short_convolution.h"

#include <string>

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

AlignedBuffer<float> Buffer(std::span<const float> values) {
  AlignedBuffer<float> buffer(values.size());
  std::copy(values.begin(), values.end(), buffer.data());
  return buffer;
}

// A convolution with random weights and the slots of a few sessions. Slots start as garbage but for
// the bases that fresh sessions read.
struct Fixture {
  Fixture(size_t channel_count, size_t window_size, bool with_silu, bool with_bias, uint64_t seed)
      : channels(channel_count), window(window_size), silu(with_silu), random(seed) {
    weight = RandomFloats(channels * window, random);
    bias = with_bias ? RandomFloats(channels, random) : std::vector<float>();
    layout.Add(StatePart::kTail, "other", DType::kFloat32, {16});
    convolution =
        ShortConvolution(Buffer(weight), Buffer(bias), channels, window, silu, "conv", layout);
    bases = AlignedBuffer<float>(kSlots * layout.base_bytes() / sizeof(float));
    tails = AlignedBuffer<float>(kSlots * layout.tail_bytes() / sizeof(float));
    std::fill_n(tails.data(), tails.size(), NAN);
    state = {reinterpret_cast<std::byte*>(bases.data()), layout.base_bytes(),
             reinterpret_cast<std::byte*>(tails.data()), layout.tail_bytes()};
  }

  void Clear(uint32_t slot) {
    std::fill_n(state.Base<float>(slot, 0), layout.base_bytes() / sizeof(float), 0.0f);
  }

  // The sequence in pieces of the given lengths, fold into `out` slots that alternate if asked.
  std::vector<float> Run(const TestMatrix& x, std::span<const size_t> cuts, bool alternate,
                         ThreadPool& pool) {
    Clear(0);
    TestMatrix y(x.view().rows, channels, 1, 2);
    uint32_t in = 0;
    size_t done = 0;
    for (size_t cut : cuts) {
      const uint32_t out = alternate && Folds(done, cut, kFoldInterval) ? 1 - in : in;
      const Segment segment{done, cut, done, in, out, 2};
      convolution.Apply(std::span(&segment, 1), state, x.view(), y.view(), pool);
      in = out;
      done += cut;
    }
    EXPECT_TRUE(y.CanariesAlive());
    return y.Values();
  }

  std::vector<double> Reference(const TestMatrix& x) const {
    std::vector<double> y;
    for (size_t t = 0; t < x.view().rows; ++t) {
      for (size_t c = 0; c < channels; ++c) {
        double sum = bias.empty() ? 0.0 : bias[c];
        for (size_t j = 0; j < window; ++j) {
          if (t + j + 1 < window) continue;
          sum += double{weight[c * window + j]} * x.view().row(t + j + 1 - window)[c];
        }
        y.push_back(silu ? sum / (1 + std::exp(-sum)) : sum);
      }
    }
    return y;
  }

  static constexpr size_t kSlots = 8;
  size_t channels, window;
  bool silu;
  std::mt19937_64 random;
  std::vector<float> weight, bias;
  StateLayout layout;
  ShortConvolution convolution;
  AlignedBuffer<float> bases, tails;
  LayerState state;
};

TEST(ShortConvolutionTest, MatchesFp64) {
  const uint64_t seed = TestSeed();
  ThreadPool pool(2);
  for (size_t window : {2, 3, 4, 7, 16}) {
    for (size_t channels : {1, 15, 16, 40, 700}) {
      Fixture f(channels, window, window % 2 == 0, channels % 2 == 0, seed);
      TestMatrix x(70, channels, 3, 1);
      x.Fill(RandomFloats(70 * channels, f.random));
      const size_t whole[] = {70};
      EXPECT_TRUE(Close(f.Run(x, whole, false, pool), f.Reference(x), 2e-6))
          << "window " << window << " channels " << channels;
    }
  }
}

TEST(ShortConvolutionTest, EveryCutFoldPlaceAndThreadCountGivesTheSameBits) {
  const uint64_t seed = TestSeed();
  Fixture f(1100, 4, true, true, seed);
  TestMatrix x(75, f.channels);
  x.Fill(RandomFloats(75 * f.channels, f.random));
  const std::vector<size_t> ones(75, 1);
  const std::vector<std::vector<size_t>> all_cuts = {
      {75}, ones, {16, 16, 16, 16, 11}, {15, 1, 17, 42}, {1, 31, 2, 41}, {33, 42}};
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    for (size_t threads = 1; threads <= 3; ++threads) {
      ThreadPool pool(threads);
      for (const auto& cuts : all_cuts) {
        for (bool alternate : {false, true}) {
          const std::vector<float> y = f.Run(x, cuts, alternate, pool);
          if (first.empty()) first = y;
          EXPECT_TRUE(SameBits(y, first)) << target << " threads " << threads << " first cut "
                                          << cuts[0] << " alternate " << alternate;
        }
      }
    }
  });
}

TEST(ShortConvolutionTest, SessionsOfOneStepDoNotTouchEachOther) {
  const uint64_t seed = TestSeed();
  Fixture f(48, 4, true, false, seed);
  ThreadPool pool(2);
  TestMatrix x(40, 48), y(40, 48);
  x.Fill(RandomFloats(40 * 48, f.random));
  const size_t cut[] = {20};
  TestMatrix half(20, 48);
  const std::vector<float> inputs = x.Values();
  half.Fill(std::span(inputs).first(20 * 48));
  const std::vector<float> first = f.Run(half, cut, false, pool);
  half.Fill(std::span(inputs).last(20 * 48));
  const std::vector<float> second = f.Run(half, cut, false, pool);
  f.Clear(4);
  f.Clear(5);
  const Segment both[] = {{20, 20, 0, 4, 6, 3}, {0, 20, 0, 5, 5, 7}};
  f.convolution.Apply(both, f.state, x.view(), y.view(), pool);
  const std::vector<float> outputs = y.Values();
  EXPECT_TRUE(SameBits(std::span(outputs).first(20 * 48), first));
  EXPECT_TRUE(SameBits(std::span(outputs).last(20 * 48), second));
  const float* shared = f.state.Base<float>(4, 0);
  for (size_t i = 0; i < 3 * 48; ++i) ASSERT_EQ(shared[i], 0.0f) << "a shared base changed";
}

TEST(ShortConvolutionTest, RowsOutsideOfTheSegmentsAreUntouched) {
  Fixture f(20, 3, false, false, TestSeed());
  ThreadPool pool(1);
  TestMatrix x(4, 20), y(4, 20);
  x.Fill(RandomFloats(4 * 20, f.random));
  const Segment segment{1, 2, 0, 0, 0, 0};
  f.convolution.Apply(std::span(&segment, 1), f.state, x.view(), y.view(), pool);
  for (size_t row : {0, 3}) EXPECT_EQ(y.view().row(row)[7], TestMatrix::kCanary);
}

TEST(ShortConvolutionTest, StatesItsPlanes) {
  Fixture f(20, 4, false, false, TestSeed());
  const std::vector<StatePlane>& planes = f.layout.planes();
  ASSERT_EQ(planes.size(), 3u);
  EXPECT_EQ(planes[1].name, "conv.before");
  EXPECT_EQ(planes[2].name, "conv.tail");
  EXPECT_EQ(planes[1].shape, (std::vector<size_t>{3, 32}));
  EXPECT_EQ(planes[2].shape, (std::vector<size_t>{kFoldInterval, 32}));
}

}  // namespace
}  // namespace rivulet
