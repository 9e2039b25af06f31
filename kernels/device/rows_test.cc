// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Residual sum and norm, and norm and gate of the output, on the GPU: near the fake device's
// numbers for any width, and the same bits for a row alone.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

std::vector<float> RowOf(const std::vector<float>& rows, size_t row, size_t columns) {
  const auto begin = rows.begin() + static_cast<ptrdiff_t>(row * columns);
  return {begin, begin + static_cast<ptrdiff_t>(columns)};
}

Operand EmptyOperand(Device& device, uint32_t rows, size_t columns) {
  return OperandOf(device, std::vector<float>(rows * columns, 1.0f), rows, columns);
}

// --- residual sum and norm ---------------------------------------------------------------------

struct Stream {
  uint32_t rows, columns;
  bool has_update, has_bias;
  std::vector<float> x, update, weight, bias;
};

Stream RandomStream(uint32_t rows, uint32_t columns, bool has_update, bool has_bias,
                    std::mt19937_64& random) {
  const size_t padded = PaddedColumns(columns);
  return {rows,
          columns,
          has_update,
          has_bias,
          RandomFloats(size_t{rows} * columns, random),
          RandomFloats(size_t{rows} * columns, random),
          RandomFloats(padded, random),
          RandomFloats(padded, random)};
}

struct Normed {
  std::vector<float> x, y;
};

AddNormCall CallFor(Device& device, const Stream& stream) {
  AddNormCall call{.x = MatrixOn(device, stream.x, stream.rows, stream.columns),
                   .weight = ToDevice(device, stream.weight),
                   .eps = 1e-5f,
                   .y = EmptyOperand(device, stream.rows, PaddedColumns(stream.columns))};
  if (stream.has_update) {
    call.update = MatrixOn(device, stream.update, stream.rows, stream.columns);
  }
  if (stream.has_bias) call.bias = ToDevice(device, stream.bias);
  return call;
}

Normed RunNorm(Device& device, const AddNormCall& call) {
  device.AddNorm(call);
  return {NumbersOf(device, call.x), NumbersOf(device, call.y)};
}

Normed NormOf(Device& device, const Stream& stream) {
  return RunNorm(device, CallFor(device, stream));
}

class AddNormTest : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { RIVULET_NEED_GPU(); }
  std::mt19937_64 random_{TestSeed()};
};

TEST_P(AddNormTest, IsNearTheFakeDevice) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  double worst = 0;
  for (const bool has_update : {false, true}) {
    for (const bool has_bias : {false, true}) {
      const Stream stream = RandomStream(300, GetParam(), has_update, has_bias, random_);
      const Normed got = NormOf(**gpu, stream), wanted = NormOf(fake, stream);
      EXPECT_TRUE(SameBits(got.x, wanted.x));
      worst = std::max(worst, Distance(got.y, wanted.y));
    }
  }
  std::printf("norms of %u differ by %.2g\n", GetParam(), worst);
  EXPECT_LE(worst, 3e-5);
}

TEST_P(AddNormTest, ARowHasTheSameBitsAlone) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  constexpr uint32_t kRows = 300;
  const Stream all = RandomStream(kRows, GetParam(), true, GetParam() % 32 != 0, random_);
  const Normed together = NormOf(**gpu, all);
  for (uint32_t r = 0; r < kRows; r += 23) {
    Stream one = all;
    one.rows = 1;
    one.x = RowOf(all.x, r, all.columns), one.update = RowOf(all.update, r, all.columns);
    const Normed alone = NormOf(**gpu, one);
    EXPECT_TRUE(SameBits(alone.x, RowOf(together.x, r, all.columns))) << r;
    EXPECT_TRUE(SameBits(alone.y, RowOf(together.y, r, together.y.size() / kRows))) << r;
  }
}

// A decode step adds a block's output and norms the sum in one call; a prompt, whose rows are not
// all needed for logits, in two.
TEST_P(AddNormTest, HasTheSameBitsInOneCallAndInTwo) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  for (const auto& [keep, add] : {std::pair(1.0f, 1.0f), {0.9f, 1.2f}}) {
    for (const bool has_bias : {false, true}) {
      const Stream stream = RandomStream(40, GetParam(), true, has_bias, random_);
      AddNormCall sum = CallFor(**gpu, stream);
      sum.keep = keep, sum.add = add;
      const Normed one = RunNorm(**gpu, sum);
      AddNormCall alone = sum, norm = sum;
      alone.x = norm.x = MatrixOn(**gpu, stream.x, stream.rows, stream.columns);
      alone.y = {};
      norm.y = EmptyOperand(**gpu, stream.rows, PaddedColumns(stream.columns));
      norm.keep = norm.add = 1, norm.update = {};
      (*gpu)->AddNorm(alone);
      const Normed two = RunNorm(**gpu, norm);
      EXPECT_TRUE(SameBits(one.x, two.x)) << keep << " " << has_bias;
      EXPECT_TRUE(SameBits(one.y, two.y)) << keep << " " << has_bias;
    }
  }
}

// What few models have: a norm of the update, factors, and a stream that becomes its norm.
TEST_P(AddNormTest, RareFormsAreNearTheFakeDevice) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  const auto run = [](Device& device, const Stream& stream, bool norms_update, bool has_weight) {
    AddNormCall call = CallFor(device, stream);
    call.keep = 0.9f, call.add = 1.2f;
    call.keeps_normed = has_weight;
    if (!has_weight) call.weight = call.bias = nullptr;
    if (!norms_update) return RunNorm(device, call);
    call.update_weight = ToDevice(device, stream.bias);
    call.update_eps = 1e-3f;
    if (stream.has_bias) call.update_bias = ToDevice(device, stream.weight);
    return RunNorm(device, call);
  };
  for (const bool has_bias : {false, true}) {
    for (const bool norms_update : {false, true}) {
      for (const bool has_weight : {false, true}) {
        const Stream stream = RandomStream(40, GetParam(), true, has_bias, random_);
        const Normed got = run(**gpu, stream, norms_update, has_weight);
        const Normed wanted = run(fake, stream, norms_update, has_weight);
        EXPECT_LE(Distance(got.x, wanted.x), 3e-5) << norms_update << has_weight;
        EXPECT_LE(Distance(got.y, wanted.y), 3e-5) << norms_update << has_weight;
      }
    }
  }
}

// Of `count` sums each, as if of a row of three times as many numbers. What follows a row's sums
// must not be read.
RowFactor FactorFor(Device& device, const std::vector<float>& numbers, uint32_t rows,
                    uint32_t count) {
  const uint32_t stride = count + 3;
  std::vector<float> squares(size_t{rows} * stride, NAN);
  for (size_t i = 0; i < numbers.size(); ++i) {
    squares[i / count * stride + i % count] = numbers[i] * numbers[i];
  }
  const FloatMatrix on_device = MatrixOn(device, squares, rows, stride);
  return {.squares = on_device.data,
          .stride = static_cast<uint32_t>(on_device.stride),
          .count = count,
          .width = 3 * count,
          .eps = 1e-3f};
}

TEST_P(AddNormTest, AFactorOfTheUpdateIsNearTheFakeDevices) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  constexpr uint32_t kRows = 40;
  for (const uint32_t count : {1u, 320u, 1031u}) {
    const Stream stream = RandomStream(kRows, GetParam(), true, count == 320, random_);
    const std::vector<float> numbers = RandomFloats(size_t{kRows} * count, random_);
    for (const bool norms_update : {false, true}) {
      const auto run = [&](Device& device) {
        AddNormCall call = CallFor(device, stream);
        call.update_factor = FactorFor(device, numbers, kRows, count);
        if (norms_update) call.update_weight = ToDevice(device, stream.bias);
        return RunNorm(device, call);
      };
      const Normed got = run(**gpu), wanted = run(fake);
      EXPECT_LE(Distance(got.x, wanted.x), 3e-5) << count << norms_update;
      EXPECT_LE(Distance(got.y, wanted.y), 3e-5) << count << norms_update;
    }
  }
}

TEST_P(AddNormTest, ARowWithAFactorHasTheSameBitsAloneAndInTwoCalls) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  constexpr uint32_t kRows = 30, kCount = 320;
  const Stream all = RandomStream(kRows, GetParam(), true, false, random_);
  const std::vector<float> numbers = RandomFloats(size_t{kRows} * kCount, random_);
  AddNormCall call = CallFor(**gpu, all);
  call.update_factor = FactorFor(**gpu, numbers, kRows, kCount);
  const Normed together = RunNorm(**gpu, call);
  for (uint32_t r = 0; r < kRows; r += 7) {
    Stream one = all;
    one.rows = 1;
    one.x = RowOf(all.x, r, all.columns), one.update = RowOf(all.update, r, all.columns);
    AddNormCall sum = CallFor(**gpu, one), norm = sum;
    sum.update_factor = FactorFor(**gpu, RowOf(numbers, r, kCount), 1, kCount);
    sum.y = {}, norm.update = {};
    (*gpu)->AddNorm(sum);
    const Normed alone = RunNorm(**gpu, norm);
    EXPECT_TRUE(SameBits(alone.x, RowOf(together.x, r, all.columns))) << r;
    EXPECT_TRUE(SameBits(alone.y, RowOf(together.y, r, together.y.size() / kRows))) << r;
  }
}

// Of one warp, of many; no multiple of four; the widest.
INSTANTIATE_TEST_SUITE_P(Widths, AddNormTest,
                         testing::Values(3u, 64u, 257u, 768u, 2560u, 4097u, kMostNormedWidth));

// --- norm and gate -----------------------------------------------------------------------------

struct Group {
  uint32_t heads, width, padded, norm_width;
  bool aligned = true;  // the gate's rows begin at 16 bytes
};

struct Output {
  Group group;
  uint32_t rows;
  FinishOrder order;
  std::vector<float> o, gate, weight;
};

Output RandomOutput(const Group& group, uint32_t rows, FinishOrder order, std::mt19937_64& random) {
  const size_t columns = size_t{group.heads} * group.width;
  return {group,
          rows,
          order,
          RandomFloats(rows * size_t{group.heads} * group.padded, random),
          RandomFloats(rows * (columns + 1), random),
          RandomFloats(PaddedColumns(group.norm_width), random)};
}

std::vector<float> FinishOf(Device& device, const Output& output) {
  const Group& group = output.group;
  const size_t columns = size_t{group.heads} * group.width;
  const FloatMatrix gate = MatrixOn(device, output.gate, output.rows, columns + 1);
  const FinishCall call{
      .o = MatrixOn(device, output.o, output.rows, size_t{group.heads} * group.padded),
      .gate = gate.Columns(group.aligned ? 0 : 1, columns),
      .heads = group.heads,
      .width = group.width,
      .padded = group.padded,
      .norm_width = group.norm_width,
      .order = output.order,
      .weight = ToDevice(device, output.weight),
      .weight_period = group.norm_width,
      .eps = 1e-5f,
      .y = EmptyOperand(device, output.rows, PaddedColumns(columns))};
  device.Finish(call);
  return NumbersOf(device, call.y);
}

class FinishTest : public testing::TestWithParam<Group> {
 protected:
  void SetUp() override { RIVULET_NEED_GPU(); }
  std::mt19937_64 random_{TestSeed()};
};

TEST_P(FinishTest, IsNearTheFakeDevice) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  double worst = 0;
  for (const FinishOrder order :
       {FinishOrder::kNormThenGate, FinishOrder::kGateThenNorm, FinishOrder::kGateOnly}) {
    const Output output = RandomOutput(GetParam(), 40, order, random_);
    worst = std::max(worst, Distance(FinishOf(**gpu, output), FinishOf(fake, output)));
  }
  std::printf("groups of %u differ by %.2g\n", GetParam().norm_width, worst);
  EXPECT_LE(worst, 5e-5);
}

TEST_P(FinishTest, ARowHasTheSameBitsAlone) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  constexpr uint32_t kRows = 300;
  const Output all = RandomOutput(GetParam(), kRows, FinishOrder::kNormThenGate, random_);
  const std::vector<float> together = FinishOf(**gpu, all);
  for (uint32_t r = 0; r < kRows; r += 37) {
    Output one = all;
    one.rows = 1;
    one.o = RowOf(all.o, r, all.o.size() / kRows),
    one.gate = RowOf(all.gate, r, all.gate.size() / kRows);
    EXPECT_TRUE(SameBits(FinishOf(**gpu, one), RowOf(together, r, together.size() / kRows))) << r;
  }
}

// Groups of a warp, with one, two and four fours a lane, and of a block; heads with padding; what
// cannot be read in fours.
INSTANTIATE_TEST_SUITE_P(Groups, FinishTest,
                         testing::Values(Group{5, 64, 64, 64}, Group{16, 128, 128, 128},
                                         Group{3, 20, 32, 20}, Group{2, 256, 256, 256},
                                         Group{1, 500, 512, 500}, Group{4, 130, 144, 520},
                                         Group{40, 64, 64, 2560}, Group{80, 64, 64, 5120},
                                         Group{64, 128, 128, 8192}, Group{3, 33, 48, 33},
                                         Group{8, 64, 64, 64, false},
                                         Group{16, 64, 64, 1024, false}));

}  // namespace
}  // namespace rivulet
