// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// ANNA's operations on the GPU beside the fake device: the same buckets, numbers within tolerance,
// the same states; and the same bits for a session in any segments and with any neighbours.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/buckets_operations.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

struct Case {
  const char* name;
  bool cross_polytope;
  uint32_t heads, key_dim, tables, hashes, value_dim;
  bool include_self;

  uint32_t buckets() const {
    uint32_t count = 1;
    for (uint32_t j = 0; j < hashes; ++j) count *= cross_polytope ? 2 * key_dim : 2;
    return count;
  }
  uint32_t padded() const { return (value_dim + 15) / 16 * 16; }
  size_t panel_floats() const {
    const size_t outputs = size_t{tables} * hashes, width = cross_polytope ? key_dim : outputs;
    return heads * (cross_polytope ? outputs : 1) * ((width + 15) / 16 * 16) * key_dim;
  }
};

constexpr uint32_t kSlots = 6;
constexpr size_t kTokens = 100;  // of each session

// A session's tokens of one step, where its state is, and where it goes.
struct Piece {
  uint32_t session;
  uint32_t position, tokens;
  uint32_t base_in, base_out;
};

// Queries, keys and values [sessions, kTokens, H · D, H · D, H · E].
struct Inputs {
  std::vector<std::vector<float>> q, k, v;
};

// ANNA's state on one device, and steps of it.
class Anna {
 public:
  Anna(Device& device, const Case& shape, const std::vector<float>& panels)
      : device_(device), shape_(shape), panels_(ToDevice(device, panels)) {
    const size_t buckets = size_t{shape.heads} * shape.tables * shape.buckets();
    counts_offset_ = buckets * shape.padded() * sizeof(float);
    base_stride_ = counts_offset_ + (buckets + 15) / 16 * 64;
    values_offset_ = size_t{shape.heads} * shape.tables * 64;
    tail_stride_ = values_offset_ + size_t{shape.heads} * 16 * shape.padded() * sizeof(float);
    bases_ = ToDevice(device, std::vector<float>(kSlots * base_stride_ / 4, 1e20f));
    tails_ = ToDevice(device, std::vector<float>(kSlots * tail_stride_ / 4, 1e20f));
  }

  // The outputs of a step's tokens [T, H · Ep].
  std::vector<float> Step(const Inputs& inputs, const std::vector<Piece>& pieces) {
    std::vector<DeviceSegment> segments;
    std::vector<uint32_t> segment_of;
    std::vector<float> q, k, v;
    bool single = true;
    for (const Piece& p : pieces) {
      const auto first = static_cast<uint32_t>(segment_of.size());
      segments.push_back({first, p.tokens, p.position, p.base_in, p.base_out, p.session, 0});
      const uint32_t rows = std::max(p.tokens, 1u);  // a segment without tokens has a row
      segment_of.insert(segment_of.end(), rows, static_cast<uint32_t>(segments.size() - 1));
      single = single && p.tokens <= 1;
      Append(inputs.q[p.session], p.position, rows, q);
      Append(inputs.k[p.session], p.position, rows, k);
      Append(inputs.v[p.session], p.position, rows, v);
    }
    const size_t rows = segment_of.size();
    const DeviceRows step{ToDevice(device_, segments), ToDevice(device_, segment_of),
                          static_cast<uint32_t>(segments.size()), static_cast<uint32_t>(rows),
                          single};
    const size_t tables = size_t{shape_.heads} * shape_.tables;
    q_buckets_ = Empty(rows, tables), k_buckets_ = Empty(rows, tables);
    device_.Hash({.q = MatrixOn(device_, q, rows, q.size() / rows),
                  .k = MatrixOn(device_, k, rows, k.size() / rows),
                  .panels = panels_,
                  .cross_polytope = shape_.cross_polytope,
                  .heads = shape_.heads,
                  .key_dim = shape_.key_dim,
                  .tables = shape_.tables,
                  .hashes = shape_.hashes,
                  .q_buckets = q_buckets_,
                  .k_buckets = k_buckets_});
    const FloatMatrix out = Empty(rows, size_t{shape_.heads} * shape_.padded());
    device_.Buckets(CallFor(step, MatrixOn(device_, v, rows, v.size() / rows), out));
    return NumbersOf(device_, out);
  }

  // Of the last step.
  std::vector<float> QueryBuckets() { return NumbersOf(device_, q_buckets_); }
  std::vector<float> KeyBuckets() { return NumbersOf(device_, k_buckets_); }
  std::vector<float> Base(uint32_t slot) {
    const size_t numbers = counts_offset_ / 4 + counts_offset_ / 4 / shape_.padded();
    return FromDevice(device_, bases_ + slot * base_stride_ / 4, numbers);
  }

 private:
  static void Append(const std::vector<float>& all, size_t first, size_t rows,
                     std::vector<float>& to) {
    const size_t columns = all.size() / kTokens;
    to.insert(to.end(), all.begin() + first * columns, all.begin() + (first + rows) * columns);
  }
  FloatMatrix Empty(size_t rows, size_t columns) {
    return MatrixOn(device_, std::vector<float>(rows * columns, 0.0f), rows, columns);
  }
  BucketsCall CallFor(const DeviceRows& rows, ConstFloatMatrix v, FloatMatrix out) const {
    BucketsCall call;
    call.rows = rows;
    call.slots = {reinterpret_cast<std::byte*>(bases_),
                  base_stride_,
                  reinterpret_cast<std::byte*>(tails_),
                  tail_stride_,
                  nullptr,
                  0};
    call.heads = shape_.heads, call.tables = shape_.tables, call.buckets = shape_.buckets();
    call.value_dim = shape_.value_dim, call.padded_value = shape_.padded();
    call.include_self = shape_.include_self;
    call.q_buckets = q_buckets_, call.k_buckets = k_buckets_, call.v = v;
    call.counts_offset = counts_offset_, call.values_offset = values_offset_;
    call.out = out;
    return call;
  }

  Device& device_;
  Case shape_;
  const float* panels_;
  size_t counts_offset_, base_stride_, values_offset_, tail_stride_;
  float *bases_, *tails_;
  FloatMatrix q_buckets_, k_buckets_;
};

class BucketsTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    const Case& c = GetParam();
    panels_ = RandomFloats(c.panel_floats(), random_);
    for (size_t session = 0; session < 3; ++session) {
      inputs_.q.push_back(RandomFloats(kTokens * c.heads * c.key_dim, random_));
      inputs_.k.push_back(RandomFloats(kTokens * c.heads * c.key_dim, random_));
      inputs_.v.push_back(RandomFloats(kTokens * c.heads * c.value_dim, random_));
    }
    // Some keys are a query, and some vectors are zero.
    std::copy_n(inputs_.q[0].begin(), inputs_.q[0].size() / 2, inputs_.k[0].begin());
    std::fill_n(inputs_.k[1].begin(), c.heads * c.key_dim, 0.0f);
  }

  std::mt19937_64 random_{TestSeed()};
  std::vector<float> panels_;
  Inputs inputs_;
};

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = WorstDifference(worst, a[i], b[i]);
  }
  return worst;
}

// Prompts, decoding, folds in place and into other slots, and a segment without tokens.
std::vector<std::vector<Piece>> Steps() {
  std::vector<std::vector<Piece>> steps = {
      {{0, 0, 37, 0, 1}, {1, 0, 5, 2, 2}},
      {{1, 5, 60, 2, 3}, {0, 37, 1, 1, 1}, {2, 0, 16, 4, 5}},
  };
  for (uint32_t i = 0; i < 30; ++i) {
    steps.push_back({{0, 38 + i, 1, 1, 1}});
    if (i % 5 == 4) steps.back().push_back({2, 16, 0, 5, 5});
    if (65 + i < 80) steps.back().push_back({1, 65 + i, 1, 3, 2});  // folds at 80
  }
  return steps;
}

TEST_P(BucketsTest, DoesWhatTheFakeDeviceDoes) {
  auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  Anna on_gpu(**gpu, GetParam(), panels_), on_host(fake, GetParam(), panels_);
  double outputs = 0, states = 0;
  for (const std::vector<Piece>& step : Steps()) {
    const std::vector<float> got = on_gpu.Step(inputs_, step), wanted = on_host.Step(inputs_, step);
    EXPECT_EQ(on_gpu.QueryBuckets(), on_host.QueryBuckets());
    EXPECT_EQ(on_gpu.KeyBuckets(), on_host.KeyBuckets());
    outputs = std::max(outputs, LargestDifference(got, wanted));
  }
  for (const uint32_t slot : {1, 2, 3, 5}) {
    states = std::max(states, LargestDifference(on_gpu.Base(slot), on_host.Base(slot)));
  }
  std::printf("%s: outputs differ by %.2g, states by %.2g\n", GetParam().name, outputs, states);
  EXPECT_LE(outputs, 1e-5);
  EXPECT_LE(states, 1e-5);
}

TEST_P(BucketsTest, HasTheSameBitsFromEverySchedule) {
  const size_t width = size_t{GetParam().heads} * GetParam().padded();
  for (const auto precision : {ProductPrecision::kBFloat16, ProductPrecision::kFloat32}) {
    auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    Anna whole(**gpu, GetParam(), panels_);
    const std::vector<float> expected = whole.Step(inputs_, {{0, 0, kTokens, 0, 0}});
    for (const uint32_t piece : {1u, 7u, 16u, 33u}) {
      Anna parts(**gpu, GetParam(), panels_);
      std::vector<float> got;
      for (uint32_t at = 0; at < kTokens; at += piece) {
        const uint32_t tokens = std::min<uint32_t>(piece, kTokens - at);
        // In company of a session of its own length, which lies in front.
        const auto y = parts.Step(inputs_, {{1, at, tokens, 1, 1}, {0, at, tokens, 0, 0}});
        got.insert(got.end(), y.begin() + tokens * width, y.end());
      }
      EXPECT_TRUE(SameBits(got, expected)) << "in pieces of " << piece;
      EXPECT_TRUE(SameBits(parts.Base(0), whole.Base(0))) << "in pieces of " << piece;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, BucketsTest,
                         testing::Values(Case{"simhash", false, 2, 16, 4, 3, 16, true},
                                         Case{"simhash_large", false, 3, 64, 16, 6, 64, true},
                                         Case{"simhash_strict_wide", false, 2, 30, 37, 5, 200,
                                              false},
                                         Case{"simhash_narrow", false, 1, 7, 1, 1, 5, true},
                                         Case{"polytope", true, 2, 8, 3, 1, 8, true},
                                         Case{"polytope_strict", true, 2, 3, 4, 2, 18, false},
                                         Case{"polytope_large", true, 2, 64, 8, 1, 64, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace rivulet
