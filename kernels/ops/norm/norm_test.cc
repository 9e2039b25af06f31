// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/norm/norm.h"

#include "kernels/base/test_support.h"
#include "kernels/ops/norm/trained_norm.h"

namespace rivulet {
namespace {

constexpr float kEps = 1e-5f;

double Silu(double x) { return x / (1 + std::exp(-x)); }

// x / sqrt(mean(x²) + eps) · weight, one row in fp64.
std::vector<double> ReferenceRms(std::span<const double> x, const float* weight, double eps) {
  double sum = 0;
  for (double value : x) sum += value * value;
  const double inverse = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(x[i] * inverse * (weight == nullptr ? 1.0 : weight[i]));
  }
  return y;
}

std::vector<double> Doubles(const float* from, size_t count) { return {from, from + count}; }

void Append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

TEST(NormTest, OrderedDotMatchesFp64AtEveryLengthAndAlignment) {
  std::mt19937_64 random(TestSeed());
  for (size_t count = 0; count < 70; ++count) {
    TestMatrix x(1, count, count % 7), y(1, count, count % 3);
    x.Fill(RandomFloats(count, random));
    y.Fill(RandomFloats(count, random));
    double reference = 0, magnitude = 1e-30;
    for (size_t i = 0; i < count; ++i) {
      reference += double{x.view().data[i]} * y.view().data[i];
      magnitude += std::abs(double{x.view().data[i]} * y.view().data[i]);
    }
    EXPECT_NEAR(OrderedDot(x.view().data, y.view().data, count), reference, 1e-6 * magnitude);
  }
}

TEST(NormTest, RmsNormMatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (size_t width : {1, 3, 15, 16, 17, 63, 64, 100, 1024, 2051}) {
    TestMatrix x(3, width, 1, 3), y(3, width, 2, 1);
    x.Fill(RandomFloats(3 * width, random));
    const std::vector<float> weight = RandomFloats(width, random);
    for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
      std::vector<double> reference;
      for (size_t t = 0; t < 3; ++t) {
        Append(reference, ReferenceRms(Doubles(x.view().row(t), width), w, kEps));
      }
      RmsNorm(x.view(), w, kEps, y.view(), pool);
      EXPECT_TRUE(Close(y.Values(), reference, 1e-6)) << width;
      EXPECT_TRUE(y.CanariesAlive());
    }
    RmsNorm(x.view(), nullptr, kEps, x.view(), pool);
    RmsNorm(y.view(), nullptr, kEps, y.view(), pool);
    EXPECT_TRUE(x.CanariesAlive());
  }
}

TEST(NormTest, RmsNormWorksInPlaceWithTheSameBits) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  TestMatrix x(2, 77), y(2, 77);
  x.Fill(RandomFloats(2 * 77, random));
  RmsNorm(x.view(), nullptr, kEps, y.view(), pool);
  RmsNorm(x.view(), nullptr, kEps, x.view(), pool);
  EXPECT_TRUE(SameBits(x.Values(), y.Values()));
}

// (x - mean) / sqrt(variance + eps) · weight + bias, one row in fp64.
std::vector<double> ReferenceLayerNorm(const std::vector<double>& x, const float* weight,
                                       const float* bias) {
  double mean = 0, squares = 0;
  for (double value : x) mean += value / static_cast<double>(x.size());
  for (double value : x) squares += (value - mean) * (value - mean);
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) y.push_back((x[i] - mean) * inverse * weight[i] + bias[i]);
  return y;
}

// A mean far from zero: the difference must be taken before the squares.
TEST(NormTest, LayerNormMatchesFp64) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (size_t width : {1, 3, 16, 17, 100, 1024}) {
    TestMatrix x(3, width, 1, 3), y(3, width, 2, 1);
    std::vector<float> values = RandomFloats(3 * width, random);
    for (float& value : values) value += 100;
    x.Fill(values);
    const std::vector<float> weight = RandomFloats(width, random);
    const std::vector<float> bias = RandomFloats(width, random);
    std::vector<double> reference;
    for (size_t t = 0; t < 3; ++t) {
      Append(reference,
             ReferenceLayerNorm(Doubles(x.view().row(t), width), weight.data(), bias.data()));
    }
    LayerNorm(x.view(), weight.data(), bias.data(), kEps, y.view(), pool);
    EXPECT_TRUE(Close(y.Values(), reference, 1e-4)) << width;
    EXPECT_TRUE(y.CanariesAlive());
    LayerNorm(x.view(), weight.data(), bias.data(), kEps, x.view(), pool);
    EXPECT_TRUE(SameBits(x.Values(), y.Values()));
  }
}

AlignedBuffer<float> Copy(const std::vector<float>& values) {
  AlignedBuffer<float> copy(values.size());
  std::copy(values.begin(), values.end(), copy.data());
  return copy;
}

TEST(NormTest, ATrainedNormIsTheOneItWasMadeAs) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(1);
  TestMatrix x(2, 20), expected(2, 20), y(2, 20);
  x.Fill(RandomFloats(40, random));
  const std::vector<float> weight = RandomFloats(20, random), bias = RandomFloats(20, random);
  TrainedNorm::Rms(Copy(weight), kEps).Apply(x.view(), y.view(), pool);
  RmsNorm(x.view(), weight.data(), kEps, expected.view(), pool);
  EXPECT_TRUE(SameBits(y.Values(), expected.Values()));
  TrainedNorm::Layer(Copy(weight), Copy(bias), kEps).Apply(x.view(), y.view(), pool);
  LayerNorm(x.view(), weight.data(), bias.data(), kEps, expected.view(), pool);
  EXPECT_TRUE(SameBits(y.Values(), expected.Values()));
  EXPECT_TRUE(TrainedNorm().empty());
}

TEST(NormTest, HeadNormGateNormsEachHeadThenGates) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  constexpr size_t kTokens = 3, kHeads = 4;
  for (size_t width : {1, 8, 16, 20, 33, 64}) {
    const size_t stride = (width + 15) / 16 * 16;
    TestMatrix x(kTokens, kHeads * stride), gate(kTokens, kHeads * width, 1, 2);
    TestMatrix y(kTokens, kHeads * width, 3, 1);
    x.Fill(RandomFloats(kTokens * kHeads * stride, random));
    gate.Fill(RandomFloats(kTokens * kHeads * width, random));
    const std::vector<float> weight = RandomFloats(width, random);
    for (bool gated : {true, false}) {
      std::vector<double> reference;
      for (size_t t = 0; t < kTokens; ++t) {
        for (size_t h = 0; h < kHeads; ++h) {
          auto head =
              ReferenceRms(Doubles(x.view().row(t) + h * stride, width), weight.data(), kEps);
          for (size_t i = 0; gated && i < width; ++i) {
            head[i] *= Silu(gate.view().row(t)[h * width + i]);
          }
          Append(reference, head);
        }
      }
      HeadNormGate(x.view(), kHeads, width, stride, weight.data(), kEps,
                   gated ? ConstFloatMatrix(gate.view()) : ConstFloatMatrix(), y.view(), pool);
      EXPECT_TRUE(Close(y.Values(), reference, 2e-6)) << width;
      EXPECT_TRUE(y.CanariesAlive());
    }
  }
}

TEST(NormTest, GateThenNormNormsGroups) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  for (size_t groups : {1, 2, 5}) {
    for (size_t width : {3, 16, 50, 128}) {
      const size_t columns = groups * width;
      TestMatrix x(4, columns, 1, 2), gate(4, columns, 0, 1), y(4, columns, 2, 3);
      x.Fill(RandomFloats(4 * columns, random));
      gate.Fill(RandomFloats(4 * columns, random));
      const std::vector<float> weight = RandomFloats(columns, random);
      std::vector<double> reference;
      for (size_t t = 0; t < 4; ++t) {
        for (size_t g = 0; g < groups; ++g) {
          auto group = Doubles(x.view().row(t) + g * width, width);
          for (size_t i = 0; i < width; ++i) group[i] *= Silu(gate.view().row(t)[g * width + i]);
          Append(reference, ReferenceRms(group, weight.data() + g * width, kEps));
        }
      }
      GateThenNorm(x.view(), gate.view(), groups, weight.data(), kEps, y.view(), pool);
      EXPECT_TRUE(Close(y.Values(), reference, 2e-6)) << groups << " x " << width;
      EXPECT_TRUE(y.CanariesAlive());
    }
  }
}

TEST(NormTest, L2NormHeadsScalesInPlaceAndLeavesTheRest) {
  std::mt19937_64 random(TestSeed());
  ThreadPool pool(2);
  constexpr size_t kTokens = 3, kHeads = 2;
  for (size_t width : {1, 8, 17, 48}) {
    const size_t stride = (width + 15) / 16 * 16;
    TestMatrix x(kTokens, kHeads * stride);
    x.Fill(RandomFloats(kTokens * kHeads * stride, random));
    const std::vector<float> before = x.Values();
    L2NormHeads(x.view(), kHeads, width, stride, 0.25f, pool);
    const std::vector<float> after = x.Values();
    for (size_t first = 0; first < before.size(); first += stride) {
      double sum = 1e-6;
      for (size_t i = 0; i < width; ++i) sum += double{before[first + i]} * before[first + i];
      for (size_t i = 0; i < stride; ++i) {
        const double expected =
            i < width ? 0.25 * before[first + i] / std::sqrt(sum) : double{before[first + i]};
        EXPECT_NEAR(after[first + i], expected, 1e-6 * std::abs(expected));
      }
    }
  }
}

TEST(NormTest, L2NormOfZerosIsZero) {
  ThreadPool pool(1);
  std::vector<float> x(16, 0.0f);
  L2NormHeads({x.data(), 1, 16, 16}, 1, 16, 16, 1.0f, pool);
  EXPECT_EQ(x, std::vector<float>(16, 0.0f));
}

// Rows alone, in company, with threads and on other vector widths: the same bits.
TEST(NormTest, BitsDependOnTheRowAlone) {
  std::mt19937_64 random(TestSeed());
  constexpr size_t kTokens = 300, kColumns = 3 * 70;
  TestMatrix x(kTokens, kColumns), gate(kTokens, kColumns);
  x.Fill(RandomFloats(kTokens * kColumns, random));
  gate.Fill(RandomFloats(kTokens * kColumns, random));
  const std::vector<float> weight = RandomFloats(kColumns, random);
  std::vector<float> first;
  const auto run = [&](size_t begin, size_t count, const TestMatrix& y, ThreadPool& pool) {
    const FloatMatrix rows = y.view().Rows(begin, count);
    GateThenNorm(x.view().Rows(begin, count), gate.view().Rows(begin, count), 3, weight.data(),
                 kEps, rows, pool);
    RmsNorm(rows, weight.data(), kEps, rows, pool);
    LayerNorm(rows, weight.data(), weight.data(), kEps, rows, pool);
    L2NormHeads(rows, 3, 70, 70, 1.0f, pool);
  };
  ForEachFusedTarget([&](const char* target) {
    for (size_t threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      TestMatrix together(kTokens, kColumns), alone(kTokens, kColumns);
      run(0, kTokens, together, pool);
      for (size_t t = 0; t < kTokens; ++t) run(t, 1, alone, pool);
      if (first.empty()) first = together.Values();
      EXPECT_TRUE(SameBits(together.Values(), first)) << target << " threads " << threads;
      EXPECT_TRUE(SameBits(alone.Values(), first)) << target << " threads " << threads;
    }
  });
}

}  // namespace
}  // namespace rivulet
