// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gate of an MLP on the GPU beside the fake device: every function, any width.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gate_operations.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

constexpr Activation kFunctions[] = {
    Activation::kIdentity, Activation::kSilu,     Activation::kSigmoid,     Activation::kRelu,
    Activation::kGelu,     Activation::kGeluTanh, Activation::kReluSquared, Activation::kTanh};

struct Inputs {
  uint32_t rows, columns;
  std::vector<float> both;  // [rows, 2 · columns]: gate, and what it gates
};

std::vector<float> GateOf(Device& device, const Inputs& inputs, Activation f, float gate_multiplier,
                          float multiplier, float limit = 0) {
  const FloatMatrix both = MatrixOn(device, inputs.both, inputs.rows, 2 * inputs.columns);
  const size_t padded = PaddedColumns(inputs.columns);
  const std::vector<float> ones(inputs.rows * padded, 1.0f);
  const Operand y = OperandOf(device, ones, inputs.rows, padded);
  device.Gate({.gate = both.Columns(0, inputs.columns),
               .x = both.Columns(inputs.columns, inputs.columns),
               .f = f,
               .gate_multiplier = gate_multiplier,
               .multiplier = multiplier,
               .limit = limit,
               .y = y});
  return NumbersOf(device, y);
}

TEST(GateTest, DoesWhatTheFakeDeviceDoes) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  for (const auto precision : {ProductPrecision::kFloat32, ProductPrecision::kBFloat16}) {
    auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    FakeDevice fake;
    double worst = 0;
    for (const uint32_t columns : {1u, 4u, 33u, 512u, 516u, 5000u}) {
      const uint32_t rows = columns > 600 ? 3 : 70;
      const Inputs inputs{rows, columns, RandomFloats(size_t{rows} * 2 * columns, random, 4.0f)};
      for (const Activation f : kFunctions) {
        const float limit = f == Activation::kSilu ? 0.9f : 0.0f;
        const std::vector<float> got = GateOf(**gpu, inputs, f, -0.7f, 0.3f, limit);
        const std::vector<float> wanted = GateOf(fake, inputs, f, -0.7f, 0.3f, limit);
        ASSERT_EQ(got.size(), wanted.size());
        worst = std::max(worst, Distance(got, wanted));
      }
    }
    std::printf("gates differ by %.2g\n", worst);
    EXPECT_LE(worst, precision == ProductPrecision::kFloat32 ? 3e-5 : 5e-3);
  }
}

// The result as numbers, in the place of what is gated.
TEST(GateTest, NumbersAreWhatAnOperandIsMadeOf) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  for (const uint32_t columns : {5u, 64u, 516u}) {
    const Inputs inputs{7, columns, RandomFloats(size_t{7} * 2 * columns, random, 4.0f)};
    const FloatMatrix both = MatrixOn(**gpu, inputs.both, 7, 2 * columns);
    const FloatMatrix x = both.Columns(columns, columns);
    (*gpu)->Gate(
        {.gate = both.Columns(0, columns), .x = x, .f = Activation::kSigmoid, .numbers = x});
    const std::vector<float> got = NumbersOf(**gpu, both);
    FakeDevice fake;
    const std::vector<float> wanted = GateOf(fake, inputs, Activation::kSigmoid, 1, 1);
    const size_t padded = wanted.size() / 7;
    for (uint32_t t = 0; t < 7; ++t) {
      for (uint32_t i = 0; i < columns; ++i) {
        EXPECT_NEAR(got[t * 2 * columns + columns + i], wanted[t * padded + i], 1e-5);
        EXPECT_EQ(got[t * 2 * columns + i], inputs.both[t * 2 * columns + i]);
      }
    }
  }
}

TEST(GateTest, ARowHasTheSameBitsAlone) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  constexpr uint32_t kRows = 40, kColumns = 516;
  const Inputs all{kRows, kColumns, RandomFloats(size_t{kRows} * 2 * kColumns, random, 4.0f)};
  const std::vector<float> together = GateOf(**gpu, all, Activation::kGeluTanh, 0.9f, 1.1f);
  const size_t padded = together.size() / kRows;
  for (uint32_t r = 0; r < kRows; ++r) {
    const auto begin = all.both.begin() + r * 2 * kColumns;
    const Inputs one{1, kColumns, {begin, begin + 2 * kColumns}};
    const std::span<const float> row(together.data() + r * padded, padded);
    EXPECT_TRUE(SameBits(GateOf(**gpu, one, Activation::kGeluTanh, 0.9f, 1.1f), row)) << r;
  }
}

}  // namespace
}  // namespace rivulet
