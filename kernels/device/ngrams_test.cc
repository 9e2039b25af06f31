// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Embeddings of n-grams on the GPU beside the fake device: the same rows of the table for every cut
// of a session, and gates near it.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/ngram_operations.h"

namespace rivulet {
namespace {

constexpr uint32_t kTokens = 90, kEndOfText = 3, kVocab = 40, kWidth = 20;

struct Shape {
  uint32_t ngram, heads;  // of all orders
};

struct Inputs {
  Inputs(const Shape& of, std::mt19937_64& random) : shape(of) {
    for (uint32_t i = 0; i < kTokens; ++i) ids.push_back(random() % kVocab);
    for (uint32_t i = 0; i < of.ngram; ++i) hash.push_back(random() >> 8 | 1);
    for (uint32_t i = 0; i < of.heads; ++i) hash.push_back(31 + 2 * i);
    for (uint32_t i = 0; i < of.heads; ++i) {
      hash.push_back(rows);
      rows += static_cast<uint32_t>(31 + 2 * i);
    }
    // Numbers that bf16 has.
    table = RandomFloats(size_t{rows} * kWidth, random);
    for (float& x : table) x = BFloat16ToFloat(FloatToBFloat16(x));
  }
  Shape shape;
  uint32_t rows = 0;
  std::vector<uint32_t> ids;
  std::vector<uint64_t> hash;
  std::vector<float> table;
};

// The rows of a session in steps of these lengths, beside a segment without tokens. The first id of
// a step is what was sampled last.
std::vector<float> RowsOf(Device& device, const Inputs& in, const std::vector<uint32_t>& steps) {
  const DeviceLinear table =
      *device.Pack({{in.table.data(), DType::kFloat32, in.rows, nullptr}}, kWidth);
  const std::vector<uint32_t> nothing(64, 0xffffffffu);
  auto* const base = reinterpret_cast<std::byte*>(ToDevice(device, nothing));
  auto* const tail = reinterpret_cast<std::byte*>(ToDevice(device, nothing));
  const uint64_t* const hash = ToDevice(device, in.hash);
  std::vector<float> result;
  for (uint32_t position = 0, i = 0; position < kTokens; ++i) {
    const uint32_t count = std::min(steps[i % steps.size()], kTokens - position);
    const bool single = count == 1;
    const uint32_t skipped = single ? 1 : 0, rows = skipped + count;
    const std::vector<DeviceSegment> segments = {{0, 0, 5, 1, 1, 1, 0},
                                                 {skipped, count, position, 0, 0, 0, 0}};
    std::vector<uint32_t> segment_of(rows, 1), ids(skipped, 7);
    if (single) segment_of[0] = 0;
    ids.insert(ids.end(), in.ids.begin() + position, in.ids.begin() + position + count);
    const std::vector<uint32_t> last = {ids[skipped], 9};
    ids[skipped] = UINT32_MAX;
    const uint32_t columns = in.shape.heads * kWidth;
    const Operand y =
        OperandOf(device, std::vector<float>(size_t{rows} * columns, 1.0f), rows, columns);
    device.NgramRows(
        {.rows = {ToDevice(device, segments), ToDevice(device, segment_of), 2, rows, single},
         .slots = {base, 128, tail, 128},
         .ids = ToDevice(device, ids),
         .last_tokens = ToDevice(device, last),
         .ngram = in.shape.ngram,
         .heads = in.shape.heads,
         .hash = hash,
         .end_of_text = kEndOfText,
         .table = table,
         .before_offset = 64,
         .tail_offset = 32,
         .y = y});
    const std::vector<float> numbers = NumbersOf(device, y);
    result.insert(result.end(), numbers.begin() + skipped * y.columns, numbers.end());
    position += count;
  }
  return result;
}

const std::vector<std::vector<uint32_t>>& Cuts() {
  static const std::vector<std::vector<uint32_t>> cuts = {
      {kTokens}, {1}, {7, 1, 16, 3}, {15, 2, 33}, {16}};
  return cuts;
}

constexpr Shape kShapes[] = {{2, 3}, {3, 4}, {5, 8}, {8, 14}};

TEST(NgramsTest, TheFakeDevicesRowsDoNotDependOnTheCut) {
  std::mt19937_64 random(TestSeed());
  for (const Shape& shape : kShapes) {
    const Inputs inputs(shape, random);
    FakeDevice fake;
    const std::vector<float> whole = RowsOf(fake, inputs, Cuts()[0]);
    for (const auto& cut : Cuts()) EXPECT_TRUE(SameBits(RowsOf(fake, inputs, cut), whole));
  }
}

TEST(NgramsTest, TheGpuFindsTheFakeDevicesRows) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  for (const auto precision : {ProductPrecision::kFloat32, ProductPrecision::kBFloat16}) {
    auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    for (const Shape& shape : kShapes) {
      const Inputs inputs(shape, random);
      FakeDevice fake;
      const std::vector<float> expected = RowsOf(fake, inputs, Cuts()[0]);
      for (const auto& cut : Cuts()) {
        EXPECT_TRUE(SameBits(RowsOf(**gpu, inputs, cut), expected)) << shape.ngram << " " << cut[0];
      }
    }
  }
}

struct GateInputs {
  uint32_t streams, hidden, tokens;
  std::vector<float> keys, value, x, key_weight, query_weight, weight;

  GateInputs(uint32_t of_streams, uint32_t of_hidden, std::mt19937_64& random)
      : streams(of_streams), hidden(of_hidden), tokens(7) {
    const size_t all = size_t{streams} * hidden;
    for (std::vector<float>* rows : {&keys, &x}) *rows = RandomFloats(tokens * all, random, 2.0f);
    value = RandomFloats(size_t{tokens} * hidden, random, 2.0f);
    for (std::vector<float>* row : {&key_weight, &query_weight, &weight}) {
      *row = RandomFloats(all, random);
    }
  }
};

std::vector<float> GatesOf(Device& device, const GateInputs& in) {
  const uint32_t all = in.streams * in.hidden;
  const FloatMatrix keys = MatrixOn(device, in.keys, in.tokens, all);
  const FloatMatrix gated = MatrixOn(device, in.keys, in.tokens, all);
  const FloatMatrix normed = MatrixOn(device, in.keys, in.tokens, all);
  device.NgramGate({.streams = in.streams,
                    .keys = keys,
                    .value = MatrixOn(device, in.value, in.tokens, in.hidden),
                    .x = MatrixOn(device, in.x, in.tokens, all),
                    .key_weight = device.Constant(in.key_weight),
                    .query_weight = device.Constant(in.query_weight),
                    .weight = device.Constant(in.weight),
                    .eps = 1e-6f,
                    .gated = gated,
                    .normed = normed});
  std::vector<float> result = NumbersOf(device, gated);
  const std::vector<float> behind = NumbersOf(device, normed);
  result.insert(result.end(), behind.begin(), behind.end());
  return result;
}

TEST(NgramsTest, GatesAreNearTheFakeDevice) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  std::vector<std::unique_ptr<GateInputs>> kept;
  for (const auto& [streams, hidden] : {std::pair(1u, 16u), {3u, 40u}, {4u, 2048u}}) {
    kept.push_back(std::make_unique<GateInputs>(streams, hidden, random));
    FakeDevice fake;
    const std::vector<float> expected = GatesOf(fake, *kept.back());
    const std::vector<double> reference(expected.begin(), expected.end());
    EXPECT_TRUE(Close(GatesOf(**gpu, *kept.back()), reference, 1e-4)) << hidden;
  }
}

}  // namespace
}  // namespace rivulet
