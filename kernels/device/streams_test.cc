// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Residual streams on the GPU beside the fake device: near its numbers, and the same bits for a
// token alone.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/stream_operations.h"

namespace rivulet {
namespace {

struct Shape {
  StreamForm form;
  uint32_t streams, hidden;
  uint32_t rounds = 1;

  uint32_t weights() const {
    if (form == StreamForm::kGated) return streams * hidden;
    return (2 + streams) * streams;
  }
};

// [tokens, ·] each.
struct Inputs {
  Inputs(const Shape& of, uint32_t count, std::mt19937_64& random)
      : shape(of),
        tokens(count),
        streams(RandomFloats(size_t{count} * of.streams * of.hidden, random, 2.0f)),
        weights(RandomFloats(size_t{count} * of.weights(), random, 2.0f)),
        shares(RandomFloats(size_t{count} * of.streams, random, 2.0f)),
        output(RandomFloats(size_t{count} * of.hidden, random, 2.0f)),
        bias(RandomFloats(of.weights(), random)) {}

  // What a token alone has.
  Inputs Only(uint32_t token) const {
    Inputs one = *this;
    one.tokens = 1;
    for (std::vector<float>* rows : {&one.streams, &one.weights, &one.shares, &one.output}) {
      const size_t columns = rows->size() / tokens;
      const std::vector<float> row(rows->begin() + token * columns,
                                   rows->begin() + (token + 1) * columns);
      *rows = row;
    }
    return one;
  }

  Shape shape;
  uint32_t tokens;
  std::vector<float> streams, weights, shares, output, bias;
};

// What a block reads, and the next streams behind it, [tokens, ·].
std::vector<float> RunStreams(Device& device, const Inputs& in, const std::vector<float>& bias) {
  const Shape& shape = in.shape;
  const uint32_t all = shape.streams * shape.hidden;
  const FloatMatrix x = MatrixOn(device, in.streams, in.tokens, all);
  const FloatMatrix y = MatrixOn(device, std::vector<float>(size_t{in.tokens} * shape.hidden),
                                 in.tokens, shape.hidden);
  CollapseStreamsCall collapse{.form = shape.form,
                               .streams = shape.streams,
                               .x = x,
                               .weights = MatrixOn(device, in.weights, in.tokens, shape.weights()),
                               .bias = device.Constant(bias),
                               .scales = {0.7f, 1.3f, 0.9f},
                               .rounds = shape.rounds,
                               .eps = 1e-4f,
                               .y = y};
  if (shape.form == StreamForm::kGated) {
    collapse.normed = OperandOf(device, in.streams, in.tokens, all);
  }
  device.CollapseStreams(collapse);
  std::vector<float> result = NumbersOf(device, y);
  if (shape.form == StreamForm::kMean) return result;
  const bool gated = shape.form == StreamForm::kGated;
  device.ExpandStreams(
      {.form = shape.form,
       .streams = shape.streams,
       .output = MatrixOn(device, in.output, in.tokens, shape.hidden),
       .weights = gated ? MatrixOn(device, in.shares, in.tokens, shape.streams) : collapse.weights,
       .x = x});
  const std::vector<float> next = NumbersOf(device, x);
  result.insert(result.end(), next.begin(), next.end());
  return result;
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {
      {StreamForm::kMean, 3, 40},        {StreamForm::kMean, 8, 2048},
      {StreamForm::kSinkhorn, 1, 16},    {StreamForm::kSinkhorn, 4, 2048, 20},
      {StreamForm::kSinkhorn, 3, 50, 4}, {StreamForm::kSinkhorn, 8, 300, 100},
      {StreamForm::kGated, 4, 2048},     {StreamForm::kGated, 3, 40},
      {StreamForm::kGated, 8, 700}};
  return shapes;
}

TEST(StreamsTest, AreNearTheFakeDevice) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  std::vector<std::unique_ptr<Inputs>> kept;
  for (const Shape& shape : Shapes()) {
    kept.push_back(std::make_unique<Inputs>(shape, 9, random));
    const Inputs& inputs = *kept.back();
    FakeDevice fake;
    const std::vector<float> expected = RunStreams(fake, inputs, inputs.bias);
    const std::vector<double> reference(expected.begin(), expected.end());
    EXPECT_TRUE(Close(RunStreams(**gpu, inputs, inputs.bias), reference, 3e-5))
        << static_cast<int>(shape.form) << " " << shape.streams << " " << shape.hidden;
  }
}

TEST(StreamsTest, ATokenHasTheSameBitsAlone) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  constexpr uint32_t kTokens = 9;
  std::vector<std::unique_ptr<Inputs>> kept;
  for (const Shape& shape : Shapes()) {
    kept.push_back(std::make_unique<Inputs>(shape, kTokens, random));
    const Inputs& inputs = *kept.back();
    const std::vector<float> together = RunStreams(**gpu, inputs, inputs.bias);
    const size_t first = size_t{shape.hidden} * kTokens;
    for (uint32_t t = 0; t < kTokens; ++t) {
      const std::vector<float> alone = RunStreams(**gpu, inputs.Only(t), inputs.bias);
      const std::span<const float> read(alone.data(), shape.hidden);
      const std::span<const float> next(alone.data() + shape.hidden, alone.size() - shape.hidden);
      EXPECT_TRUE(SameBits(read, {together.data() + t * shape.hidden, shape.hidden})) << t;
      EXPECT_TRUE(SameBits(next, {together.data() + first + t * next.size(), next.size()})) << t;
    }
  }
}

// Rows and columns of the mixing matrix sum to about one, so a sum over streams stays what it is.
TEST(StreamsTest, TheFakeDeviceKeepsTheSumOfTheStreams) {
  std::mt19937_64 random(TestSeed());
  FakeDevice fake;
  Inputs inputs({StreamForm::kSinkhorn, 4, 33, 200}, 5, random);
  std::fill(inputs.output.begin(), inputs.output.end(), 0.0f);
  const std::vector<float> got = RunStreams(fake, inputs, inputs.bias);
  const auto sum = [&](const float* streams, size_t token, size_t column) {
    double total = 0;
    for (size_t s = 0; s < 4; ++s) total += double{streams[token * 132 + s * 33 + column]};
    return total;
  };
  for (size_t t = 0; t < 5; ++t) {
    for (size_t i = 0; i < 33; ++i) {
      EXPECT_NEAR(sum(got.data() + size_t{5} * 33, t, i), sum(inputs.streams.data(), t, i), 0.01);
    }
  }
}

}  // namespace
}  // namespace rivulet
