// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/activation/activation.h"

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/test_support.h"

namespace rivulet {
namespace {

constexpr Activation kAll[] = {
    Activation::kIdentity,   Activation::kSilu, Activation::kSigmoid,     Activation::kRelu,
    Activation::kEluPlusOne, Activation::kExp,  Activation::kSoftplus,    Activation::kLogSigmoid,
    Activation::kGeluTanh,   Activation::kGelu, Activation::kReluSquared, Activation::kTanh};

double Reference(Activation f, double x) {
  switch (f) {
    case Activation::kIdentity:
      return x;
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kEluPlusOne:
      return x > 0 ? x + 1 : std::exp(x);
    case Activation::kExp:
      return std::exp(x);
    case Activation::kSoftplus:
      return x > 20 ? x : std::log1p(std::exp(x));
    case Activation::kLogSigmoid:
      return x < -20 ? x : -std::log1p(std::exp(-x));
    case Activation::kGeluTanh:
      return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return x / 2 * std::erfc(-x / std::sqrt(2.0));
    case Activation::kReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::kTanh:
      return std::tanh(x);
  }
  return 0;
}

float ActivateOne(Activation f, float x) {
  float y;
  Activate(f, &x, &y, 1);
  return y;
}

TEST(ActivationTest, EveryFunctionIsWithinAFewUnitsOfFp64) {
  for (Activation f : kAll) {
    for (float x = -100; x < 88; x += 0.0137f) {
      const double reference = Reference(f, x);
      // Gelu's left tail is x times what is left of 1: absolute digits, not relative ones.
      const bool gelu = f == Activation::kGeluTanh || f == Activation::kGelu;
      const double tail = gelu && x < 0 ? 1 : 0;
      const double limit = (std::abs(reference) + tail) * 1e-6 + 1e-36;
      ASSERT_NEAR(ActivateOne(f, x), reference, limit) << "f " << int(f) << " x " << x;
    }
  }
}

TEST(ActivationTest, SoftCapIsCapTimesTanh) {
  constexpr float kCap = 30.0f;
  std::vector<float> x, y(2001);
  for (int i = -1000; i <= 1000; ++i) x.push_back(0.17f * static_cast<float>(i));
  SoftCap(kCap, x.data(), y.data(), x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double reference = kCap * std::tanh(double{x[i]} / kCap);
    ASSERT_NEAR(y[i], reference, 1e-6 * std::abs(reference)) << x[i];
    float alone;
    SoftCap(kCap, &x[i], &alone, 1);
    ASSERT_EQ(alone, y[i]) << "bits depend on the place";
  }
  const float broken[] = {std::nanf(""), INFINITY};
  SoftCap(kCap, broken, y.data(), 2);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST(ActivationTest, ExtremesSaturateAndNanStaysNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ActivateOne(Activation::kExp, 1e30f), kInf);
  EXPECT_EQ(ActivateOne(Activation::kExp, 90.0f), kInf);
  EXPECT_EQ(ActivateOne(Activation::kExp, -kInf), 0.0f);
  EXPECT_EQ(ActivateOne(Activation::kSigmoid, -1e30f), 0.0f);
  EXPECT_EQ(ActivateOne(Activation::kSigmoid, 1e30f), 1.0f);
  EXPECT_EQ(ActivateOne(Activation::kSilu, -1e30f), 0.0f);
  EXPECT_EQ(ActivateOne(Activation::kSilu, 1e30f), 1e30f);
  EXPECT_EQ(ActivateOne(Activation::kSoftplus, 1e30f), 1e30f);
  EXPECT_EQ(ActivateOne(Activation::kLogSigmoid, -1e30f), -1e30f);
  EXPECT_EQ(ActivateOne(Activation::kGeluTanh, 1e30f), 1e30f);
  EXPECT_EQ(ActivateOne(Activation::kGeluTanh, -1e30f), 0.0f);
  EXPECT_EQ(ActivateOne(Activation::kGelu, 1e30f), 1e30f);
  EXPECT_EQ(ActivateOne(Activation::kGelu, -1e30f), 0.0f);
  EXPECT_EQ(ActivateOne(Activation::kReluSquared, 1e30f), kInf);
  for (Activation f : kAll) EXPECT_TRUE(std::isnan(ActivateOne(f, std::nanf("")))) << int(f);
}

TEST(ActivationTest, BitsDependOnTheNumberAlone) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> values = RandomFloats(100, random, 5.0f);
  for (Activation f : kAll) {
    std::vector<float> one_by_one;
    for (float x : values) one_by_one.push_back(ActivateOne(f, x));
    ForEachFusedTarget([&](const char* target) {
      for (size_t count = 0; count <= 50; ++count) {
        const size_t skip = count % 17;
        TestMatrix y(1, count, count % 5);
        Activate(f, values.data() + skip, y.view().data, count);
        EXPECT_TRUE(SameBits(y.Values(), std::span(one_by_one).subspan(skip, count))) << target;
        EXPECT_TRUE(y.CanariesAlive());
      }
    });
  }
}

TEST(ActivationTest, WorksInPlace) {
  std::vector<float> x = {-1, 0, 1, 2, 3};
  Activate(Activation::kRelu, x.data(), x.data(), x.size());
  EXPECT_EQ(x, (std::vector<float>{0, 0, 1, 2, 3}));
}

TEST(ActivationTest, GateMultiplyIsSiluTimesUp) {
  std::mt19937_64 random(TestSeed());
  for (size_t count : {1, 15, 16, 17, 100}) {
    const std::vector<float> gate = RandomFloats(count, random);
    const std::vector<float> up = RandomFloats(count, random);
    std::vector<double> reference(count);
    for (size_t i = 0; i < count; ++i) reference[i] = Reference(Activation::kSilu, gate[i]) * up[i];
    std::vector<float> y(count);
    GateMultiply(Activation::kSilu, gate.data(), up.data(), y.data(), count);
    EXPECT_TRUE(Close(y, reference, 1e-6));
  }
}

TEST(ActivationTest, GateMultiplyHasTheBitsOfItsParts) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> gate = RandomFloats(100, random, 3.0f), up = RandomFloats(100, random);
  for (Activation f : kAll) {
    std::vector<float> y(100), expected(100);
    Activate(f, gate.data(), expected.data(), 100);
    for (size_t i = 0; i < 100; ++i) expected[i] *= up[i];
    GateMultiply(f, gate.data(), up.data(), y.data(), 100);
    EXPECT_TRUE(SameBits(y, expected)) << int(f);
  }
}

struct SoftmaxReference {
  std::vector<double> y;
  double log_sum = 0;
};

SoftmaxReference ReferenceSoftmax(std::span<const float> x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (float value : x) sum += std::exp(value - max);
  SoftmaxReference result;
  for (float value : x) result.y.push_back(std::exp(value - max) / sum);
  result.log_sum = max + std::log(sum);
  return result;
}

TEST(ActivationTest, SoftmaxMatchesFp64AtEveryLength) {
  std::mt19937_64 random(TestSeed());
  for (size_t count : {1, 2, 3, 15, 16, 17, 31, 33, 250, 1001, 50257}) {
    const std::vector<float> x = RandomFloats(count, random, 8.0f);
    const SoftmaxReference reference = ReferenceSoftmax(x);
    ForEachFusedTarget([&](const char* target) {
      std::vector<float> y(count);
      const float log_sum = Softmax(x.data(), y.data(), count);
      EXPECT_TRUE(Close(y, reference.y, 1e-5)) << target << " " << count;
      EXPECT_NEAR(log_sum, reference.log_sum, 1e-5 * std::abs(reference.log_sum) + 1e-6);
      EXPECT_EQ(Bits(log_sum), Bits(LogSumExp(x.data(), count)));
    });
  }
}

TEST(ActivationTest, SoftmaxBitsAreTheSameOnEachTarget) {
  std::mt19937_64 random(TestSeed());
  const std::vector<float> x = RandomFloats(1003, random, 8.0f);
  std::vector<float> first;
  ForEachFusedTarget([&](const char* target) {
    std::vector<float> y(x.size());
    Softmax(x.data(), y.data(), x.size());
    if (first.empty()) first = y;
    EXPECT_TRUE(SameBits(y, first)) << target;
  });
}

TEST(ActivationTest, SoftmaxOfHugeLogitsDoesNotOverflow) {
  const std::vector<float> x = {1e30f, 1e30f, -1e30f};
  std::vector<float> y(3);
  Softmax(x.data(), y.data(), 3);
  EXPECT_EQ(y, (std::vector<float>{0.5f, 0.5f, 0.0f}));
}

TEST(ActivationTest, TheBaselineTargetIsCorrectToo) {
  OnBaselineTarget([] {
    for (Activation f : kAll) {
      for (float x : {-50.0f, -3.0f, 0.0f, 0.5f, 30.0f}) {
        const double reference = Reference(f, x);
        EXPECT_NEAR(ActivateOne(f, x), reference, std::abs(reference) * 2e-6 + 1e-37) << int(f);
      }
    }
  });
}

}  // namespace
}  // namespace rivulet
