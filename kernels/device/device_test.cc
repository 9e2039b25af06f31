// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Products on the GPU: near the exact ones, and the same bits for every number of rows. Copies that
// run ahead of operations are there for the next one.
#include "kernels/device/device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/float8.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

struct Case {
  uint32_t outputs, inputs;
  ProductPrecision precision;
  bool float8 = false;
  bool bias = true;
};

class ProductTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    auto device = OpenCudaDevice(GetParam().precision);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    std::normal_distribution<float> normal;
    for (float& w : weights_) w = normal(random_) * std::exp(normal(random_));
    for (float& x : inputs_) x = normal(random_) * std::exp(normal(random_));
    for (float& b : bias_) b = normal(random_);
    const std::vector<LinearSource> sources = {
        {weights_.data(), DType::kFloat32, outputs(), GetParam().bias ? bias_.data() : nullptr}};
    if (!GetParam().bias) std::fill(bias_.begin(), bias_.end(), 0.0f);
    auto packed =
        GetParam().float8 ? device_->PackFloat8(sources, k()) : device_->Pack(sources, k());
    ASSERT_TRUE(packed.ok()) << packed.status();
    linear_ = *packed;
    if (GetParam().float8) RoundWeights();
  }

  void RoundWeights() {
    std::vector<uint8_t> codes(k());
    for (size_t n = 0; n < outputs(); ++n) {
      float* row = weights_.data() + n * k();
      const float scale = RoundToFloat8(row, k(), codes.data());
      for (size_t i = 0; i < k(); ++i) row[i] = Float8ToFloat(codes[i]) * scale;
    }
  }

  uint32_t outputs() const { return GetParam().outputs; }
  uint32_t k() const { return GetParam().inputs; }
  bool two_parts() const { return GetParam().precision == ProductPrecision::kFloat32; }

  // y [rows, outputs] for the rows of inputs_ from `first` on.
  std::vector<float> Product(size_t first, size_t rows) {
    DeviceWorkspace workspace(device_.get());
    const Operand x = workspace.TakeOperand(rows, k());
    std::vector<uint16_t> bits(rows * x.stride, 0);
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < k(); ++i) {
        const float number = inputs_[(first + r) * k() + i];
        const uint16_t high = FloatToBFloat16(number);
        bits[r * x.stride + i] = high;
        if (two_parts()) {
          bits[r * x.stride + x.columns + i] = FloatToBFloat16(number - BFloat16ToFloat(high));
        }
      }
    }
    EXPECT_TRUE(device_->Upload(x.data, bits.data(), bits.size() * 2).ok());
    FloatMatrix y = workspace.Take(rows, outputs());
    const std::vector<float> nan(rows * y.stride, NAN);
    EXPECT_TRUE(device_->Upload(y.data, nan.data(), nan.size() * 4).ok());
    device_->Product(linear_, x, y);
    EXPECT_TRUE(device_->Synchronize().ok());
    std::vector<float> all(rows * y.stride), result;
    auto* pinned = static_cast<float*>(device_->AllocatePinned(all.size() * 4));
    device_->CopyToHost(pinned, y.data, all.size() * 4);
    EXPECT_TRUE(device_->Synchronize().ok());
    for (size_t r = 0; r < rows; ++r) {
      result.insert(result.end(), pinned + r * y.stride, pinned + r * y.stride + outputs());
    }
    device_->FreePinned(pinned);
    return result;
  }

  static constexpr size_t kRows = 300;
  std::mt19937 random_{TestSeed()};
  std::unique_ptr<Device> device_;
  DeviceLinear linear_;
  std::vector<float> weights_ = std::vector<float>(size_t{outputs()} * k());
  std::vector<float> inputs_ = std::vector<float>(kRows * k());
  std::vector<float> bias_ = std::vector<float>(outputs());
};

// So much that what did not wait for the copy would find old numbers.
TEST(CopyAheadTest, IsSeenByLaterOperations) {
  RIVULET_NEED_GPU();
  auto device = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(device.ok()) << device.status();
  constexpr size_t kNumbers = size_t{8} << 20, kBytes = kNumbers * sizeof(uint32_t);
  const absl::StatusOr<void*> there = (*device)->Allocate(kBytes);
  ASSERT_TRUE(there.ok()) << there.status();
  auto* const here = static_cast<uint32_t*>((*device)->AllocatePinned(kBytes));
  auto* const last = static_cast<uint32_t*>((*device)->AllocatePinned(sizeof(uint32_t)));
  ASSERT_TRUE(here != nullptr && last != nullptr);
  for (uint32_t round = 1; round <= 5; ++round) {
    std::fill_n(here, kNumbers, round);
    (*device)->CopyAhead(*there, here, kBytes);
    (*device)->CopyToHost(last, static_cast<uint32_t*>(*there) + kNumbers - 1, sizeof(uint32_t));
    ASSERT_TRUE((*device)->Synchronize().ok());
    EXPECT_EQ(*last, round);
  }
  (*device)->FreePinned(here);
  (*device)->FreePinned(last);
}

TEST_P(ProductTest, IsNearTheExactProduct) {
  const std::vector<float> y = Product(0, 20);
  double worst = 0, largest = 0;
  for (size_t r = 0; r < 20; ++r) {
    for (size_t n = 0; n < outputs(); ++n) {
      double exact = bias_[n];
      for (size_t i = 0; i < k(); ++i) {
        const float x = inputs_[r * k() + i], w = weights_[n * k() + i];
        exact += two_parts() ? double{x} * w
                             : double{BFloat16ToFloat(FloatToBFloat16(x))} *
                                   (GetParam().float8 ? w : BFloat16ToFloat(FloatToBFloat16(w)));
      }
      worst = WorstDifference(worst, exact, y[r * outputs() + n]);
      largest = std::max(largest, std::abs(exact));
    }
  }
  // The tensor cores truncate each sum of a chain, so errors grow with its length.
  const double length = std::max(1.0, static_cast<double>(k()) / 5120);
  EXPECT_LE(worst / largest, (two_parts() ? 3e-5 : 1e-5) * length);
}

TEST_P(ProductTest, HasTheSameBitsForEveryNumberOfRows) {
  std::vector<float> single;
  for (size_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = Product(r, 1);
    single.insert(single.end(), row.begin(), row.end());
  }
  for (const size_t rows : {2,  3,  4,  5,  7,   8,   9,   16,  17,  31,  32,  33,  48,
                            49, 63, 64, 65, 100, 128, 129, 150, 192, 193, 256, 257, 300}) {
    const std::vector<float> y = Product(0, rows);
    EXPECT_EQ(std::memcmp(y.data(), single.data(), y.size() * sizeof(float)), 0) << rows << " rows";
  }
}

struct OrderCase {
  uint32_t outputs, inputs, rows;
  bool float8 = false;
};

// Two matrices of rows, normed into one operand in turns, each time followed by a product.
class ProductOrderTest : public testing::TestWithParam<OrderCase> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    auto device = OpenCudaDevice(ProductPrecision::kBFloat16);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    workspace_ = std::make_unique<DeviceWorkspace>(device_.get());
    const auto [outputs, inputs, rows, float8] = GetParam();
    const std::vector<float> weights = Numbers(size_t{outputs} * inputs);
    const std::vector<LinearSource> sources = {{weights.data(), DType::kFloat32, outputs}};
    const auto linear =
        float8 ? device_->PackFloat8(sources, inputs) : device_->Pack(sources, inputs);
    ASSERT_TRUE(linear.ok()) << linear.status();
    linear_ = *linear;
    operand_ = workspace_->TakeOperand(rows, inputs);
    norm_weights_ = Filled(1, inputs);
    for (int i = 0; i < 2; ++i) {
      x_[i] = Filled(rows, inputs);
      y_[i] = Filled(rows, outputs);
    }
  }

  std::vector<float> Numbers(size_t count) {
    std::vector<float> numbers(count);
    for (float& x : numbers) x = std::normal_distribution<float>()(random_);
    return numbers;
  }
  FloatMatrix Filled(size_t rows, size_t columns) {
    const FloatMatrix matrix = workspace_->Take(rows, columns);
    const std::vector<float> numbers = Numbers(rows * matrix.stride);
    EXPECT_TRUE(device_->Upload(matrix.data, numbers.data(), numbers.size() * 4).ok());
    return matrix;
  }

  void Multiply(int i) {
    device_->AddNorm({.x = x_[i], .weight = norm_weights_.data, .eps = 1e-5f, .y = operand_});
    device_->Product(linear_, operand_, y_[i]);
  }

  // The bits of y_[i].
  std::vector<uint32_t> Result(int i) {
    const size_t count = y_[i].rows * y_[i].stride;
    auto* const pinned = static_cast<uint32_t*>(device_->AllocatePinned(count * 4));
    device_->CopyToHost(pinned, y_[i].data, count * 4);
    EXPECT_TRUE(device_->Synchronize().ok());
    const std::vector<uint32_t> bits(pinned, pinned + count);
    device_->FreePinned(pinned);
    return bits;
  }

  std::mt19937 random_{TestSeed()};
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceWorkspace> workspace_;
  DeviceLinear linear_;
  Operand operand_;
  FloatMatrix norm_weights_, x_[2], y_[2];
};

// A product begins while the kernel that writes its rows still runs.
TEST_P(ProductOrderTest, ReadsTheRowsOfTheKernelBefore) {
  std::vector<uint32_t> alone[2];
  for (int i = 0; i < 2; ++i) {
    Multiply(i);
    alone[i] = Result(i);
  }
  EXPECT_NE(alone[0], alone[1]);
  for (int i = 0; i < 100; ++i) Multiply(i % 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Result(i), alone[i]);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ProductOrderTest,
    testing::Values(OrderCase{2560, 5120, 1}, OrderCase{2560, 5120, 4}, OrderCase{2560, 5120, 20},
                    OrderCase{2560, 5120, 50}, OrderCase{2560, 5120, 100},
                    OrderCase{10576, 640, 50}, OrderCase{10576, 640, 100},
                    OrderCase{10576, 640, 200}, OrderCase{320, 512, 50},
                    OrderCase{2560, 5120, 1, true}, OrderCase{2560, 5120, 4, true},
                    OrderCase{2560, 5120, 20, true}, OrderCase{2560, 5120, 100, true},
                    OrderCase{10576, 640, 1, true}, OrderCase{10576, 640, 50, true},
                    OrderCase{10576, 640, 100, true}, OrderCase{10576, 640, 200, true}),
    [](const auto& info) {
      return std::to_string(info.param.outputs) + "x" + std::to_string(info.param.inputs) + "_" +
             std::to_string(info.param.rows) + "_rows" + (info.param.float8 ? "_fp8" : "");
    });

INSTANTIATE_TEST_SUITE_P(
    Shapes, ProductTest,
    testing::Values(
        Case{256, 512, ProductPrecision::kBFloat16}, Case{264, 2560, ProductPrecision::kBFloat16},
        Case{101, 90, ProductPrecision::kBFloat16}, Case{1, 16, ProductPrecision::kBFloat16},
        Case{8, 5120, ProductPrecision::kBFloat16}, Case{2101, 4160, ProductPrecision::kBFloat16},
        Case{5300, 2560, ProductPrecision::kBFloat16}, Case{72, 320, ProductPrecision::kBFloat16},
        Case{20000, 256, ProductPrecision::kBFloat16}, Case{30, 64, ProductPrecision::kBFloat16},
        Case{2560, 5120, ProductPrecision::kBFloat16},
        Case{17000, 1536, ProductPrecision::kBFloat16},
        Case{7600, 192, ProductPrecision::kBFloat16}, Case{7690, 192, ProductPrecision::kBFloat16},
        Case{10576, 640, ProductPrecision::kBFloat16},
        Case{15300, 128, ProductPrecision::kBFloat16},
        // What a warpgroup's instruction may have of outputs (hundred_tokens.cu), beside those
        // above.
        Case{1901, 192, ProductPrecision::kBFloat16}, Case{3160, 64, ProductPrecision::kBFloat16},
        Case{6730, 256, ProductPrecision::kBFloat16}, Case{9590, 128, ProductPrecision::kBFloat16},
        Case{11530, 64, ProductPrecision::kBFloat16}, Case{12490, 192, ProductPrecision::kBFloat16},
        Case{14391, 128, ProductPrecision::kBFloat16, false, false},
        // And what it may have with long chains of few tokens.
        Case{1500, 2048, ProductPrecision::kBFloat16}, Case{600, 2090, ProductPrecision::kBFloat16},
        Case{40, 14336, ProductPrecision::kBFloat16}, Case{16, 24000, ProductPrecision::kBFloat16},
        Case{2800, 2112, ProductPrecision::kBFloat16, false, false},
        Case{256, 512, ProductPrecision::kFloat32}, Case{77, 100, ProductPrecision::kFloat32},
        Case{256, 512, ProductPrecision::kBFloat16, true},
        Case{264, 2560, ProductPrecision::kBFloat16, true},
        Case{5000, 640, ProductPrecision::kBFloat16, true},
        Case{101, 90, ProductPrecision::kBFloat16, true},
        Case{1, 16, ProductPrecision::kBFloat16, true},
        Case{8, 5120, ProductPrecision::kBFloat16, true},
        Case{40, 14336, ProductPrecision::kBFloat16, true},
        Case{2101, 4160, ProductPrecision::kBFloat16, true},
        Case{5300, 2560, ProductPrecision::kBFloat16, true},
        Case{20000, 256, ProductPrecision::kBFloat16, true},
        Case{2560, 5120, ProductPrecision::kBFloat16, true},
        Case{17000, 1536, ProductPrecision::kBFloat16, true},
        Case{10576, 640, ProductPrecision::kBFloat16, true},
        Case{15300, 128, ProductPrecision::kBFloat16, true},
        Case{1901, 192, ProductPrecision::kBFloat16, true},
        Case{6730, 256, ProductPrecision::kBFloat16, true},
        Case{9590, 128, ProductPrecision::kBFloat16, true},
        Case{11530, 64, ProductPrecision::kBFloat16, true},
        Case{12490, 192, ProductPrecision::kBFloat16, true},
        Case{14391, 128, ProductPrecision::kBFloat16, true, false},
        Case{1500, 2048, ProductPrecision::kBFloat16, true},
        Case{600, 2090, ProductPrecision::kBFloat16, true},
        Case{16, 24000, ProductPrecision::kBFloat16, true},
        Case{2800, 2112, ProductPrecision::kBFloat16, true, false}),
    [](const auto& info) {
      return std::to_string(info.param.outputs) + "x" + std::to_string(info.param.inputs) +
             (info.param.float8                                    ? "_fp8"
              : info.param.precision == ProductPrecision::kFloat32 ? "_fp32"
                                                                   : "_bf16");
    });

}  // namespace
}  // namespace rivulet
