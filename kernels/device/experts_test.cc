// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The operations of a mixture of experts on the GPU beside the fake device: the same choices and
// the same order, numbers within tolerance, and the same bits for a token in any company.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/experts_operations.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

struct Case {
  const char* name;
  uint32_t experts, per_token, hidden, width;
  bool weights_sum_to_one, shared, gate;
  bool sigmoid = false, corrected = false;
  uint32_t groups = 1, groups_per_token = 1;
  float scaling = 1;
};

// What a mixture's operations get and give on one device.
class Mixture {
 public:
  Mixture(Device& device, const Case& shape, const std::vector<float>& gate_up,
          const std::vector<float>& down, const std::vector<float>& correction, bool float8)
      : device_(device), shape_(shape), float8_(float8) {
    if (shape.corrected) correction_ = ToDevice(device, correction);
    gate_up_ = Pack(gate_up, 2 * shape.width, shape.hidden);
    down_ = Pack(down, shape.hidden, shape.width);
  }

  struct Result {
    std::vector<uint32_t> experts, rows;
    std::vector<ExpertTile> tiles;
    std::vector<float> weights, y;
  };

  // Of tokens with these logits [T, X + 1] and inputs [T, hidden]; token `absent` is not there.
  Result Run(const std::vector<float>& logits, const std::vector<float>& x, uint32_t tokens,
             uint32_t absent = UINT32_MAX) {
    const uint32_t pairs = tokens * shape_.per_token;
    const FloatMatrix scores = MatrixOn(device_, logits, tokens, shape_.experts + 1);
    const ExpertRouting routing = NewRouting(pairs, tokens);
    device_.Route({.rows = Rows(tokens, absent),
                   .logits = scores,
                   .weights_sum_to_one = shape_.weights_sum_to_one,
                   .scaling = shape_.scaling,
                   .sigmoid = shape_.sigmoid,
                   .correction = correction_,
                   .groups = shape_.groups,
                   .groups_per_token = shape_.groups_per_token,
                   .scores = Empty(tokens, shape_.experts + shape_.groups),
                   .routing = routing});
    const Operand input = OperandOf(device_, x, tokens, shape_.hidden);
    const FloatMatrix both = Empty(pairs, 2 * shape_.width);
    device_.ExpertProduct(
        {.routing = routing, .map = gate_up_, .x = input, .by_token = true, .y = both});
    const Operand middle =
        OperandOf(device_, NumbersOf(device_, both.Columns(0, shape_.width)), pairs, shape_.width);
    const FloatMatrix outputs = Empty(pairs, shape_.hidden);
    device_.ExpertProduct({.routing = routing, .map = down_, .x = middle, .y = outputs});
    CombineExpertsCall sum;
    sum.routing = routing, sum.outputs = outputs;
    sum.adds = shape_.shared;
    if (shape_.gate) sum.gate = scores.Columns(shape_.experts, 1);
    sum.y = MatrixOn(device_, x, tokens, shape_.hidden);
    device_.CombineExperts(sum);
    return {FromDevice(device_, routing.expert, pairs), FromDevice(device_, routing.row, pairs),
            FromDevice(device_, routing.tiles, routing.most_tiles),
            FromDevice(device_, routing.weight, pairs), NumbersOf(device_, sum.y)};
  }

 private:
  DeviceLinear Pack(const std::vector<float>& weights, uint32_t outputs, uint32_t inputs) {
    const std::vector<LinearSource> sources = {
        {weights.data(), DType::kFloat32, size_t{shape_.experts} * outputs, nullptr}};
    DeviceLinear all =
        float8_ ? *device_.PackFloat8(sources, inputs) : *device_.Pack(sources, inputs);
    all.outputs = outputs;
    return all;
  }
  FloatMatrix Empty(size_t rows, size_t columns) {
    return MatrixOn(device_, std::vector<float>(rows * columns, 0.0f), rows, columns);
  }
  DeviceRows Rows(uint32_t tokens, uint32_t absent) {
    std::vector<DeviceSegment> segments(tokens);
    std::vector<uint32_t> segment_of(tokens);
    for (uint32_t t = 0; t < tokens; ++t) {
      segments[t] = {t, t == absent ? 0u : 1u, 0, t, t, t, 0};
      segment_of[t] = t;
    }
    return {ToDevice(device_, segments), ToDevice(device_, segment_of), tokens, tokens, true};
  }
  ExpertRouting NewRouting(uint32_t pairs, uint32_t tokens) {
    const std::vector<uint32_t> numbers(pairs, 77);
    ExpertRouting r{.experts = shape_.experts, .per_token = shape_.per_token};
    r.tile_rows = kExpertTileRows;
    r.most_tiles = MostExpertTiles(pairs, r.experts, r.tile_rows);
    r.expert = ToDevice(device_, numbers);
    r.weight = ToDevice(device_, std::vector<float>(pairs));
    r.row = ToDevice(device_, numbers);
    r.token_of_row = ToDevice(device_, numbers);
    r.members = ToDevice(device_, std::vector<uint32_t>((tokens + 31) / 32 * r.experts, ~0u));
    r.tiles = ToDevice(device_, std::vector<ExpertTile>(r.most_tiles, {9, 9, 9, 9}));
    return r;
  }

  Device& device_;
  Case shape_;
  bool float8_;
  DeviceLinear gate_up_, down_;
  const float* correction_ = nullptr;
};

class ExpertsTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    const Case& c = GetParam();
    gate_up_ = RandomFloats(size_t{c.experts} * 2 * c.width * c.hidden, random_, 0.1f);
    down_ = RandomFloats(size_t{c.experts} * c.hidden * c.width, random_, 0.1f);
    logits_ = RandomFloats(size_t{kTokens} * (c.experts + 1), random_);
    x_ = RandomFloats(size_t{kTokens} * c.hidden, random_);
    correction_ = RandomFloats(c.experts, random_);
    for (float& logit : logits_) logit = std::round(logit * 8) / 8;  // some are equal
    for (size_t i = 0; i < c.experts; ++i) Logit(3, i) = i % 2 == 0 ? -0.0f : 0.0f;
    for (size_t i = 0; i < c.experts; i += 2) Logit(4, i) = -std::numeric_limits<float>::infinity();
    for (size_t i = 1; i < c.experts; ++i) Logit(2, i) = 1.5f;
    Logit(2, 0) = std::numeric_limits<float>::quiet_NaN();
  }
  float& Logit(size_t token, size_t expert) {
    return logits_[token * (GetParam().experts + 1) + expert];
  }
  std::vector<float> Some(const std::vector<float>& all, size_t first, size_t count) const {
    const size_t columns = all.size() / kTokens;
    return {all.begin() + first * columns, all.begin() + (first + count) * columns};
  }
  Mixture On(Device& device, bool float8 = false) {
    return {device, GetParam(), gate_up_, down_, correction_, float8};
  }

  static constexpr uint32_t kTokens = 1000;
  std::mt19937_64 random_{TestSeed()};
  std::vector<float> gate_up_, down_, correction_, logits_, x_;
};

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    worst = WorstDifference(worst, a[i], b[i]);
  }
  return worst;
}

TEST_P(ExpertsTest, DoesWhatTheFakeDeviceDoes) {
  auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  Mixture on_gpu = On(**gpu), on_host = On(fake);
  for (const uint32_t tokens : {1u, 5u, 31u, 32u, 33u, 200u, kTokens}) {
    const uint32_t absent = tokens > 5 ? 5 : UINT32_MAX;
    const auto logits = Some(logits_, 0, tokens), x = Some(x_, 0, tokens);
    const Mixture::Result got = on_gpu.Run(logits, x, tokens, absent);
    const Mixture::Result wanted = on_host.Run(logits, x, tokens, absent);
    EXPECT_EQ(got.experts, wanted.experts) << tokens;
    EXPECT_EQ(got.rows, wanted.rows) << tokens;
    ASSERT_EQ(got.tiles.size(), wanted.tiles.size());
    for (size_t i = 0; i < got.tiles.size(); ++i) {
      const ExpertTile &a = got.tiles[i], &b = wanted.tiles[i];
      EXPECT_TRUE(a.expert == b.expert && a.first_row == b.first_row && a.rows == b.rows) << i;
    }
    const double weights = LargestDifference(got.weights, wanted.weights);
    const double y = LargestDifference(got.y, wanted.y);
    std::printf("%s, %u tokens: weights differ by %.2g, outputs by %.2g\n", GetParam().name, tokens,
                weights, y);
    EXPECT_LE(weights, 1e-5);
    EXPECT_LE(y, 1e-3);
  }
}

// The fake device has the same rounded weights; on the GPU what they multiply is rounded too.
TEST_P(ExpertsTest, Float8WeightsAreThoseOfTheFakeDevice) {
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  Mixture on_gpu = On(**gpu, true), on_host = On(fake, true), unrounded = On(fake);
  for (const uint32_t tokens : {1u, 33u, 200u}) {
    const auto logits = Some(logits_, 0, tokens), x = Some(x_, 0, tokens);
    const Mixture::Result got = on_gpu.Run(logits, x, tokens);
    const Mixture::Result wanted = on_host.Run(logits, x, tokens);
    EXPECT_EQ(got.experts, wanted.experts) << tokens;
    double typical = 0;
    for (const float y : wanted.y) typical = std::max(typical, std::abs(double{y}));
    const double off = LargestDifference(got.y, wanted.y) / typical;
    const double rounding =
        LargestDifference(unrounded.Run(logits, x, tokens).y, wanted.y) / typical;
    std::printf("%s, %u tokens: outputs differ by %.2g, fp8 itself by %.2g of the largest\n",
                GetParam().name, tokens, off, rounding);
    EXPECT_LE(off, 0.01) << tokens;
  }
}

TEST_P(ExpertsTest, HasTheSameBitsAloneAndInCompany) {
  for (const auto& [precision, float8] : {std::pair(ProductPrecision::kBFloat16, false),
                                          {ProductPrecision::kFloat32, false},
                                          {ProductPrecision::kBFloat16, true}}) {
    auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    Mixture mixture = On(**gpu, float8);
    const std::vector<float> all = mixture.Run(logits_, x_, kTokens).y;
    for (const auto& [first, count] :
         {std::pair<uint32_t, uint32_t>{0, 1}, {6, 1}, {990, 1}, {0, 20}, {40, 33}, {100, 300}}) {
      const auto some = mixture.Run(Some(logits_, first, count), Some(x_, first, count), count).y;
      EXPECT_TRUE(SameBits(some, Some(all, first, count))) << count << " from " << first;
    }
  }
}

// What gates the shared expert where the experts' sum comes later.
TEST(CombineExpertsTest, WithoutExpertsItGates) {
  RIVULET_NEED_GPU();
  constexpr uint32_t kTokens = 3;
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  for (const uint32_t columns : {9u, 512u}) {
    const std::vector<float> x = RandomFloats(kTokens * columns, random);
    const std::vector<float> gates = RandomFloats(kTokens, random);
    const auto run = [&](Device& device) {
      CombineExpertsCall call;
      call.adds = true;
      call.gate = MatrixOn(device, gates, kTokens, 1);
      call.y = MatrixOn(device, x, kTokens, columns);
      call.outputs = call.y;
      device.CombineExperts(call);
      return NumbersOf(device, call.y);
    };
    EXPECT_LE(LargestDifference(run(**gpu), run(fake)), 1e-5) << columns;
  }
}

// By a sigmoid, as DeepSeek, Nemotron 3 and LFM2 choose, and what they leave out.
constexpr Case kDeepSeek{"deepseek", 64, 6, 128, 64, true, true, false, true, true, 8, 4, 2.5f};
constexpr Case kNemotron{"nemotron3", 512, 22, 64, 32, true, true, false, true, true, 1, 1, 5.0f};
constexpr Case kLfm2{"lfm2", 32, 4, 72, 40, false, false, false, true, true};
constexpr Case kEqualScores{"equal_scores", 64, 5, 32, 16, true, false, false, true, false, 4, 2};
constexpr Case kManyGroups{"groups", 1500, 32, 32, 16, false, true, true, true, true, 150, 7, 0.5f};
constexpr Case kScaled{"scaled_softmax", 16, 4, 32, 16, true, false, false, false, false, 1, 1, 3};

INSTANTIATE_TEST_SUITE_P(Shapes, ExpertsTest,
                         testing::Values(kDeepSeek, kNemotron, kLfm2, kEqualScores, kManyGroups,
                                         kScaled, Case{"few_gated", 5, 2, 32, 16, true, true, true},
                                         Case{"few_all_weights", 5, 5, 36, 24, false, true, false},
                                         Case{"one", 1, 1, 20, 12, true, false, false},
                                         Case{"granite", 62, 8, 128, 64, true, true, false},
                                         Case{"qwen3_next", 512, 10, 256, 64, true, true, true},
                                         Case{"many", 1500, 32, 64, 16, false, false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rivulet
