// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Pool selection on the GPU beside the fake device. Numbers of a choice are whole and small, so
// that scores have no rounding: both devices choose the same pools, and of equal scores the same
// ones.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/device/pool_operations.h"

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16;

struct Shape {
  uint32_t pool, most, heads, key_dim, tokens;
  bool gated = true, weighs = true;
};

// Of one session. What constants are made of lives as long as the devices.
struct Inputs {
  Inputs(const Shape& of, bool whole, std::mt19937_64& random)
      : shape(of), padded(static_cast<uint32_t>(PaddedColumns(of.key_dim))) {
    const auto numbers = [&](size_t count, float range) {
      std::vector<float> x = RandomFloats(count, random, range);
      for (float& number : x) number = whole ? std::round(number) : number;
      return x;
    };
    const size_t tokens = of.tokens;
    q = numbers(tokens * of.heads * padded, 2.0f);
    k = numbers(tokens * of.key_dim, 2.0f);
    weights = numbers(tokens * of.heads, 2.0f);
    // Equal gates make plain means.
    gates = whole ? std::vector<float>(tokens * of.key_dim) : numbers(tokens * of.key_dim, 2.0f);
    biases = whole ? std::vector<float>(of.pool * padded) : numbers(of.pool * padded, 1.0f);
    norm = RandomFloats(of.key_dim, random);
    frequencies = RandomFloats(of.key_dim / 4, random);
  }
  Shape shape;
  uint32_t padded;
  std::vector<float> q, k, weights, gates, biases, norm, frequencies;
};

struct Result {
  std::vector<float> chosen;  // [tokens, 1 + most]
  std::vector<float> keys;    // of full pools whose chunks are full
};

// The session in steps of these lengths, in company of a segment without tokens.
class Session {
 public:
  Session(Device& device, const Inputs& inputs) : device_(device), in_(inputs) {
    const Shape& shape = in_.shape;
    row_bytes_ = in_.padded * sizeof(float);
    page_bytes_ = kChunk / shape.pool * row_bytes_;
    tail_bytes_ = 2 * kChunk * row_bytes_ + page_bytes_;
    pages_ = shape.tokens / kChunk + 1;
    const std::vector<uint8_t> nothing(std::max(2 * tail_bytes_, pages_ * page_bytes_), 0xff);
    device_tails_ = reinterpret_cast<std::byte*>(ToDevice(device, nothing));
    device_pages_ = reinterpret_cast<std::byte*>(ToDevice(device, nothing));
    for (uint32_t p = 0; p < pages_; ++p) slots_.push_back(pages_ - 1 - p);
    device_slots_ = ToDevice(device, slots_);
  }

  Result Feed(const std::vector<uint32_t>& steps) {
    Result result;
    uint32_t position = 0;
    for (size_t i = 0; position < in_.shape.tokens; ++i) {
      const uint32_t count = std::min(steps[i % steps.size()], in_.shape.tokens - position);
      const std::vector<float> chosen = Step(position, count);
      result.chosen.insert(result.chosen.end(), chosen.begin(), chosen.end());
      position += count;
    }
    const auto* const pages = reinterpret_cast<const float*>(device_pages_);
    const size_t numbers = page_bytes_ / sizeof(float);
    const std::vector<float> all = FromDevice(device_, pages, pages_ * numbers);
    for (uint32_t p = 0; p < in_.shape.tokens / kChunk; ++p) {
      const auto begin = all.begin() + slots_[p] * numbers;
      result.keys.insert(result.keys.end(), begin, begin + numbers);
    }
    return result;
  }

 private:
  std::vector<float> Step(uint32_t position, uint32_t count) {
    const bool single = count == 1;
    const uint32_t skipped = single ? 1 : 0, tokens = count + skipped;
    const std::vector<DeviceSegment> segments = {{0, 0, 3, 0, 0, 1, 0},
                                                 {skipped, count, position, 0, 0, 0, 0}};
    std::vector<uint32_t> segment_of(tokens, 1);
    if (single) segment_of[0] = 0;
    const std::vector<DeviceSegmentPages> pages = {{0, 0, 0}, {0, pages_, 0}};
    const Shape& shape = in_.shape;
    PoolPlanes planes{
        .rows = {ToDevice(device_, segments), ToDevice(device_, segment_of), 2, tokens, single},
        .slots = {nullptr, 0, device_tails_, tail_bytes_, device_pages_, page_bytes_},
        .pages = {ToDevice(device_, pages), device_slots_, 0},
        .pool = shape.pool,
        .key_dim = shape.key_dim,
        .padded = in_.padded,
        .tail_pools = 2 * kChunk * row_bytes_};
    const auto rows = [&](const std::vector<float>& all) {
      const size_t columns = all.size() / shape.tokens;
      std::vector<float> own(skipped * columns);
      own.insert(own.end(), all.begin() + position * columns,
                 all.begin() + (position + count) * columns);
      return MatrixOn(device_, own, tokens, columns);
    };
    PoolKeysCall keys{.planes = planes,
                      .k = rows(in_.k),
                      .biases = device_.Constant(in_.biases),
                      .norm_weight = device_.Constant(in_.norm),
                      .norm_eps = 1e-6f,
                      .frequencies = device_.Constant(in_.frequencies),
                      .half = static_cast<uint32_t>(in_.frequencies.size()),
                      .amplitude = 1.1f,
                      .tail_gates = kChunk * row_bytes_};
    if (shape.gated) keys.gates = rows(in_.gates);
    device_.PoolKeys(keys);
    ChoosePoolsCall choice{
        .planes = planes,
        .most = shape.most,
        .heads = shape.heads,
        .q = rows(in_.q),
        .head_stride = in_.padded,
        .chosen = MatrixOn(device_, std::vector<float>(tokens * (1 + shape.most), -1.0f), tokens,
                           1 + shape.most)};
    if (shape.weighs) choice.weights = rows(in_.weights);
    device_.ChoosePools(choice);
    std::vector<float> chosen = NumbersOf(device_, choice.chosen);
    chosen.erase(chosen.begin(), chosen.begin() + skipped * (1 + shape.most));
    return chosen;
  }

  Device& device_;
  const Inputs& in_;
  size_t row_bytes_, page_bytes_, tail_bytes_;
  uint32_t pages_;
  std::vector<uint32_t> slots_;
  std::byte *device_tails_, *device_pages_;
  uint32_t* device_slots_;
};

const std::vector<uint32_t> kSingles = {1}, kPieces = {7, 1, 40, 3, 16, 1, 1, 90};

Result FeedTo(Device& device, const Inputs& inputs, const std::vector<uint32_t>& steps) {
  return Session(device, inputs).Feed(steps);
}

void ExpectSame(const Result& a, const Result& b, const std::string& what) {
  EXPECT_TRUE(SameBits(a.chosen, b.chosen)) << what;
  EXPECT_TRUE(SameBits(a.keys, b.keys)) << what;
}

std::string NameOf(const Shape& shape) {
  return "pools of " + std::to_string(shape.pool) + ", " + std::to_string(shape.most) + " of them";
}

const std::vector<Shape>& Shapes() {
  static const std::vector<Shape> shapes = {{4, 3, 5, 12, 150},
                                            {16, 8, 32, 128, 400},
                                            {1, 70, 3, 20, 1100},
                                            {2, 1, 1, 16, 1300, true, false},
                                            {8, 300, 64, 40, 3200, true, false},
                                            {1, 600, 17, 256, 1300}};
  return shapes;
}

TEST(PoolsTest, TheFakeDeviceChoosesTheSameFromEveryCut) {
  std::mt19937_64 random(TestSeed());
  for (const bool gated : {false, true}) {
    Shape shape = Shapes()[0];
    shape.gated = gated;
    const Inputs inputs(shape, false, random);
    FakeDevice fake;
    const Result whole = FeedTo(fake, inputs, {shape.tokens});
    ExpectSame(FeedTo(fake, inputs, kSingles), whole, "singles");
    ExpectSame(FeedTo(fake, inputs, kPieces), whole, "pieces");
  }
}

TEST(PoolsTest, TheGpuChoosesWhatTheFakeDeviceChooses) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  std::vector<std::unique_ptr<Inputs>> kept;
  for (const Shape& shape : Shapes()) {
    kept.push_back(std::make_unique<Inputs>(shape, true, random));
    FakeDevice fake;
    const Result expected = FeedTo(fake, *kept.back(), {shape.tokens});
    ExpectSame(FeedTo(**gpu, *kept.back(), {shape.tokens}), expected, NameOf(shape) + " whole");
    ExpectSame(FeedTo(**gpu, *kept.back(), kPieces), expected, NameOf(shape) + " pieces");
    if (shape.tokens < 1000) {
      ExpectSame(FeedTo(**gpu, *kept.back(), kSingles), expected, NameOf(shape) + " singles");
    }
  }
}

// Keys of both forms, with numbers of any kind.
TEST(PoolsTest, TheGpuMakesTheFakeDevicesKeys) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  std::vector<std::unique_ptr<Inputs>> kept;
  for (Shape shape : Shapes()) {
    if (shape.tokens > 400) continue;
    for (const bool gated : {false, true}) {
      shape.gated = gated;
      kept.push_back(std::make_unique<Inputs>(shape, false, random));
      FakeDevice fake;
      const Result whole = FeedTo(**gpu, *kept.back(), {shape.tokens});
      const Result expected = FeedTo(fake, *kept.back(), {shape.tokens});
      const std::vector<double> reference(expected.keys.begin(), expected.keys.end());
      EXPECT_TRUE(Close(whole.keys, reference, 1e-4)) << NameOf(shape) << " " << gated;
      ExpectSame(FeedTo(**gpu, *kept.back(), kPieces), whole, NameOf(shape) + " pieces");
      ExpectSame(FeedTo(**gpu, *kept.back(), kSingles), whole, NameOf(shape) + " singles");
    }
  }
}

// A score that is not a number is the best one.
TEST(PoolsTest, NaNIsChosenFirst) {
  RIVULET_NEED_GPU();
  std::mt19937_64 random(TestSeed());
  auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  Inputs inputs({4, 3, 5, 12, 150}, true, random);
  for (const uint32_t token : {21u, 90u}) inputs.k[token * 12 + 3] = std::nanf("");
  FakeDevice fake;
  const Result expected = FeedTo(fake, inputs, {150});
  const float* const last = expected.chosen.data() + size_t{149} * 4;
  EXPECT_TRUE(std::find(last + 1, last + 4, 5.0f) != last + 4);
  EXPECT_TRUE(std::find(last + 1, last + 4, 22.0f) != last + 4);
  const Result got = FeedTo(**gpu, inputs, kPieces);
  EXPECT_TRUE(SameBits(got.chosen, expected.chosen));
}

}  // namespace
}  // namespace rivulet
