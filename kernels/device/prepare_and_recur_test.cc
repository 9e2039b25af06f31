// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A recurrence whose kernel prepares its own rows on the GPU, and one that does the product before
// them as well: the same bits as product, row preparation and recurrence one after the other, in
// outputs and in all of the state.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/test_support.h"
#include "kernels/device/device_buffers.h"
#include "kernels/device/device_operations.h"
#include "kernels/device/gpu_testing.h"

namespace rivulet {
namespace {

constexpr uint32_t kChunk = 16, kWindow = 4;
// Inputs of products that a kernel does with row preparation and the recurrence.
constexpr uint32_t kProjected = 768;

// Heads of E values and groups of them that share D keys, as Mamba-2 has them.
struct Shape {
  std::string name;
  uint32_t heads = 0, groups = 1;  // H
  uint32_t key_dim = 0;            // D
  uint32_t value_dim = 0;          // E
  bool bf16_state = false;
  bool has_skip = true, has_step_bias = true;
  std::set<uint32_t> together = {1, 2, 4, 9, 20, 60};  // rows for which one kernel does both
  bool projects = false;  // whether it does a product of kProjected inputs and one row as well

  uint32_t values() const { return heads * value_dim; }
  uint32_t keys() const { return groups * key_dim; }
  uint32_t channels() const { return values() + 2 * keys(); }  // values, keys, queries
  // Of the projection: the gate, the convolution's channels, the steps.
  uint32_t columns() const { return values() + channels() + heads; }
};

// Few blocks and many; pieces of values, and odd numbers of units a key.
std::vector<Shape> Shapes() {
  std::vector<Shape> shapes = {
      {"mamba2", 24, 1, 128, 64}, {"narrow", 6, 2, 32, 16}, {"odd", 3, 1, 48, 80},
      {"wide", 32, 4, 64, 128},   {"many", 80, 1, 128, 64}, {"no_skip", 8, 1, 128, 64},
      {"no_bias", 8, 1, 16, 64},  {"alone", 4, 4, 112, 64}, {"split", 12, 3, 128, 128}};
  shapes[5].has_skip = false;
  shapes[6].has_step_bias = false;
  shapes[0].projects = shapes[5].projects = true;
  shapes[1].together = {};      // narrow values
  shapes[4].together = {1, 4};  // where it is faster
  const size_t count = shapes.size();
  for (size_t i = 0; i < count; ++i) {
    Shape shape = shapes[i];
    shape.name += "_bf16";
    shape.bf16_state = true;
    if (shape.heads == 80) shape.together.insert({9, 20});
    shapes.push_back(shape);
  }
  return shapes;
}

std::vector<Shape> ProjectedShapes() {
  std::vector<Shape> shapes = Shapes();
  std::erase_if(shapes, [](const Shape& shape) { return !shape.projects; });
  return shapes;
}

// Planes of a slot, one after the other.
struct Plane {
  size_t offset = 0, numbers = 0;
  bool bf16 = false;
};

struct Layout {
  explicit Layout(const Shape& s) {
    before = Add(base_bytes, (kWindow - 1) * s.channels(), true);
    state = Add(base_bytes, size_t{s.values()} * s.key_dim, s.bf16_state);
    inputs = Add(tail_bytes, kChunk * s.channels(), true);
    key = Add(tail_bytes, kChunk * s.keys(), true);
    value = Add(tail_bytes, kChunk * s.values(), true);
    decay = Add(tail_bytes, kChunk * s.heads, false);
  }
  static Plane Add(size_t& bytes, size_t numbers, bool bf16) {
    const Plane plane = {bytes, numbers, bf16};
    bytes += (numbers * (bf16 ? 2 : 4) + 127) / 128 * 128;
    return plane;
  }
  size_t base_bytes = 0, tail_bytes = 0;
  Plane before, state, inputs, key, value, decay;
};

class PrepareAndRecurTest : public testing::TestWithParam<Shape> {
 protected:
  using Bytes = std::vector<uint8_t>;

  void SetUp() override { RIVULET_NEED_GPU(); }

  void Fill(Bytes& bytes, size_t slot, const Plane& plane) {
    std::vector<float> numbers = RandomFloats(plane.numbers, random_);
    uint8_t* const to = bytes.data() + slot + plane.offset;
    if (!plane.bf16) return void(std::memcpy(to, numbers.data(), numbers.size() * 4));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint16_t half = FloatToBFloat16(numbers[i]);
      std::memcpy(to + i * 2, &half, 2);
    }
  }

  struct Inputs {
    std::vector<DeviceSegment> segments;
    std::vector<float> x;  // [rows, columns]
    Bytes bases, tails;
    std::vector<float> weight, bias, step_bias, rate, skip, norm;
  };
  // Of two slots a row: what is folded goes to one of its own.
  Inputs RandomInputs(uint32_t rows) {
    const Shape& s = GetParam();
    const Layout layout(s);
    Inputs inputs;
    inputs.bases.resize(2 * rows * layout.base_bytes);
    inputs.tails.resize(rows * layout.tail_bytes);
    for (uint32_t r = 0; r < rows; ++r) {
      // Some in their first chunk, some at its end, some without a token.
      const uint64_t position = r % 3 == 1 ? kChunk * (r % 4 + 1) - 1 : random_() % 50;
      inputs.segments.push_back({r, r % 7 == 3 ? 0u : 1u, position, 2 * r, 2 * r + 1, r, 0});
      Fill(inputs.bases, 2 * r * layout.base_bytes, layout.before);
      Fill(inputs.bases, 2 * r * layout.base_bytes, layout.state);
      for (const Plane& plane : {layout.inputs, layout.key, layout.value}) {
        Fill(inputs.tails, r * layout.tail_bytes, plane);
      }
    }
    inputs.x = RandomFloats(size_t{rows} * s.columns(), random_);
    inputs.weight = RandomFloats(kWindow * s.channels(), random_);
    inputs.bias = RandomFloats(s.channels(), random_);
    inputs.step_bias = RandomFloats(s.heads, random_);
    inputs.rate = RandomFloats(s.heads, random_);
    for (float& rate : inputs.rate) rate = -std::abs(rate);
    inputs.skip = RandomFloats(s.values(), random_);
    inputs.norm = RandomFloats(s.values(), random_);
    return inputs;
  }

  // Parts of a PrepareCall.
  enum Part { kValue, kKey, kQuery, kStep };

  struct Result {
    std::vector<float> y, squares;
    Bytes bases, tails;
    std::vector<float> rows;  // prepared ones
  };

  // What prepares the rows, and what reads them.
  struct Calls {
    PrepareCall prepare;
    RecurCall recur;
    FloatMatrix rows;
  };
  Calls CallsOf(Device& device, const Inputs& inputs) {
    return CallsOf(device, inputs,
                   MatrixOn(device, inputs.x, inputs.segments.size(), GetParam().columns()));
  }
  Calls CallsOf(Device& device, const Inputs& inputs, FloatMatrix x) {
    const Shape& s = GetParam();
    const auto count = static_cast<uint32_t>(inputs.segments.size());
    const uint32_t columns = s.channels() + s.heads;
    const std::vector<float> unwritten(size_t{count} * columns,
                                       std::numeric_limits<float>::infinity());
    const FloatMatrix rows = MatrixOn(device, unwritten, count, columns);
    const PrepareCall prepare = PrepareOf(device, inputs, x, rows);
    RecurCall recur = RecurOf(device, inputs, prepare);
    recur.gated = GatedOf(device, inputs, x);
    const std::vector<float> zeros(size_t{count} * s.values());
    recur.out = MatrixOn(device, zeros, count, s.values());
    return {prepare, recur, rows};
  }

  // Values, keys, queries and steps, side by side in x behind the gate and in `rows`.
  PrepareCall PrepareOf(Device& device, const Inputs& inputs, FloatMatrix x, FloatMatrix rows) {
    const Shape& s = GetParam();
    const Layout layout(s);
    const auto count = static_cast<uint32_t>(x.rows);
    std::vector<uint32_t> segment_of(count);
    for (uint32_t r = 0; r < count; ++r) segment_of[r] = r;
    PrepareCall call;
    call.rows = {ToDevice(device, inputs.segments), ToDevice(device, segment_of), count, count,
                 /*single=*/true};
    call.slots = {.bases = reinterpret_cast<std::byte*>(ToDevice(device, inputs.bases)),
                  .base_stride = layout.base_bytes,
                  .tails = reinterpret_cast<std::byte*>(ToDevice(device, inputs.tails)),
                  .tail_stride = layout.tail_bytes};
    call.convolution = {.x = x.data + s.values(),
                        .x_stride = static_cast<uint32_t>(x.stride),
                        .weight = ToDevice(device, inputs.weight),
                        .bias = ToDevice(device, inputs.bias),
                        .channels = s.channels(),
                        .weight_stride = s.channels(),
                        .window = kWindow,
                        .silu = true,
                        .before_offset = layout.before.offset,
                        .tail_offset = layout.inputs.offset};
    uint32_t first = 0;
    for (const uint32_t width : {s.values(), s.keys(), s.keys(), s.heads}) {
      PreparedPart& part = call.parts[call.part_count++];
      part.x = x.data + s.values() + first, part.x_stride = static_cast<uint32_t>(x.stride);
      part.y = rows.data + first, part.y_stride = static_cast<uint32_t>(rows.stride);
      part.width = part.padded = width;
      part.channel = first < s.channels() ? static_cast<int32_t>(first) : -1;
      first += width;
    }
    PreparedPart& step = call.parts[kStep];
    step.f = Activation::kSoftplus, step.low = 0.01f, step.high = 0.9f;
    if (s.has_step_bias) step.bias = ToDevice(device, inputs.step_bias);
    return call;
  }

  // Of the rows that `prepare` makes, without its outputs.
  RecurCall RecurOf(Device& device, const Inputs& inputs, const PrepareCall& prepare) {
    const Shape& s = GetParam();
    const Layout layout(s);
    RecurCall call;
    call.rows = prepare.rows, call.slots = prepare.slots;
    call.units = s.heads, call.units_per_key = s.heads / s.groups;
    call.key_dim = call.padded_key = s.key_dim;
    call.value_dim = call.padded_value = call.v_head_stride = s.value_dim;
    call.v = prepare.parts[kValue].y, call.k = prepare.parts[kKey].y;
    call.q = prepare.parts[kQuery].y, call.g = prepare.parts[kStep].y;
    call.q_stride = call.k_stride = call.v_stride = call.g_stride = prepare.parts[kValue].y_stride;
    call.query_per_head = false;
    call.decay = Decay::kScalar;
    call.rate = ToDevice(device, inputs.rate);
    call.times_step = true;
    if (s.has_skip) call.skip = ToDevice(device, inputs.skip);
    call.bf16_state = s.bf16_state;
    call.state_offset = layout.state.offset, call.key_offset = layout.key.offset;
    call.value_offset = layout.value.offset, call.decay_offset = layout.decay.offset;
    return call;
  }

  GatedOutputs GatedOf(Device& device, const Inputs& inputs, FloatMatrix x) {
    const size_t values = GetParam().values(), squares = values / GatedOutputs::kSquares;
    const FloatMatrix to = MatrixOn(device, std::vector<float>(x.rows * squares), x.rows, squares);
    return {.gate = x.data,
            .gate_stride = static_cast<uint32_t>(x.stride),
            .weight = ToDevice(device, inputs.norm),
            .y = OperandOf(device, std::vector<float>(x.rows * values), x.rows, values),
            .squares = to.data,
            .squares_stride = static_cast<uint32_t>(to.stride)};
  }

  Result Run(Device& device, const Inputs& inputs, bool together) {
    const Calls calls = CallsOf(device, inputs);
    if (!together) return RunApart(device, inputs, calls);
    device.PrepareAndRecur(calls.prepare, calls.recur);
    return ResultOf(device, inputs, calls);
  }
  Result RunApart(Device& device, const Inputs& inputs, const Calls& calls) {
    device.Prepare(calls.prepare);
    device.Recur(calls.recur);
    return ResultOf(device, inputs, calls);
  }
  // factors: one a row, of its gate.
  Result RunWithFactors(Device& device, const Inputs& inputs, const std::vector<float>& factors) {
    Calls calls = CallsOf(device, inputs);
    calls.recur.gated.gate_factors = ToDevice(device, factors);
    return RunApart(device, inputs, calls);
  }

  Result ResultOf(Device& device, const Inputs& inputs, const Calls& calls) {
    const GatedOutputs& gated = calls.recur.gated;
    const auto bytes = [&](const std::byte* from, size_t count) {
      return FromDevice(device, reinterpret_cast<const uint8_t*>(from), count);
    };
    return {NumbersOf(device, gated.y),
            FromDevice(device, gated.squares, inputs.segments.size() * gated.squares_stride),
            bytes(calls.prepare.slots.bases, inputs.bases.size()),
            bytes(calls.prepare.slots.tails, inputs.tails.size()),
            FromDevice(device, calls.rows.data, inputs.segments.size() * calls.rows.stride)};
  }

  // A product of one row of so many numbers, whose outputs take the place of Inputs::x.
  struct Product {
    std::vector<float> weights, input, squares;
  };
  Product RandomProduct(uint32_t width) {
    Product product{RandomFloats(size_t{GetParam().columns()} * width, random_),
                    RandomFloats(width, random_),
                    RandomFloats(width / LateNorm::kSquares, random_)};
    for (float& w : product.weights) w /= std::sqrt(static_cast<float>(width));
    for (float& s : product.squares) s = s * s + 4.0f;
    return product;
  }
  ProjectionCall ProjectionOf(Device& device, const Product& product) {
    const size_t width = product.input.size(), counted = product.squares.size();
    const std::vector<LinearSource> sources = {
        {product.weights.data(), DType::kFloat32, GetParam().columns()}};
    const auto linear = device.Pack(sources, width);
    EXPECT_TRUE(linear.ok()) << linear.status();
    const FloatMatrix squares = MatrixOn(device, product.squares, 1, counted);
    const std::vector<float> unwritten(GetParam().columns(),
                                       std::numeric_limits<float>::infinity());
    return {.linear = *linear,
            .x = OperandOf(device, product.input, 1, width),
            .factor = {.squares = squares.data,
                       .stride = static_cast<uint32_t>(squares.stride),
                       .count = static_cast<uint32_t>(counted),
                       .width = static_cast<uint32_t>(width),
                       .eps = 1e-5f},
            .y = MatrixOn(device, unwritten, 1, GetParam().columns())};
  }
  // kOffers: all at once, where the kernel declines. kProjects: where it does not.
  enum class Together { kNo, kOffers, kProjects };

  // `values`: the factor is given as a value.
  Result Run(Device& device, const Inputs& inputs, const Product& product, Together together,
             bool values) {
    ProjectionCall projection = ProjectionOf(device, product);
    if (values) projection.factor = {.values = ToDevice(device, std::vector<float>{0.7f})};
    const Calls calls = CallsOf(device, inputs, projection.y);
    if (together == Together::kNo) {
      device.Device::ProjectAndRecur(projection, calls.prepare, calls.recur);
    } else {
      device.ProjectAndRecur(projection, calls.prepare, calls.recur);
    }
    const std::vector<float> y = NumbersOf(device, projection.y);
    EXPECT_EQ(std::count_if(y.begin(), y.end(), [](float x) { return std::isfinite(x); }),
              together == Together::kProjects ? 0 : std::ptrdiff_t{GetParam().columns()});
    return ResultOf(device, inputs, calls);
  }
  void Compare(Device& device, const Inputs& inputs, const Product& product, bool values,
               bool projects) {
    SCOPED_TRACE(inputs.segments[0].position);
    const Result apart = Run(device, inputs, product, Together::kNo, values);
    const Result together =
        Run(device, inputs, product, projects ? Together::kProjects : Together::kOffers, values);
    EXPECT_TRUE(SameBits(together.y, apart.y));
    EXPECT_TRUE(SameBits(together.squares, apart.squares));
    EXPECT_EQ(together.bases, apart.bases);
    EXPECT_EQ(together.tails, apart.tails);
  }
  // Whether the bases of so many rows take long to fill.
  static bool TooMany(uint32_t rows) {
    return 2 * rows * Layout(GetParam()).base_bytes > size_t{256} << 20;
  }
  Inputs InputsAt(uint64_t position) {
    Inputs inputs = RandomInputs(1);
    inputs.segments[0].position = position;
    return inputs;
  }

  std::mt19937_64 random_{TestSeed()};
};

class ProjectAndRecurTest : public PrepareAndRecurTest {};

// How many prepared numbers were written.
size_t Written(const std::vector<float>& rows) {
  return static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](float x) { return std::isfinite(x) && x != 0; }));
}

TEST_P(PrepareAndRecurTest, HasTheBitsOfOneAfterTheOther) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  for (const uint32_t rows : {1u, 2u, 4u, 9u, 20u, 60u, 300u}) {
    if (TooMany(rows)) continue;
    const Inputs inputs = RandomInputs(rows);
    const Result apart = Run(**gpu, inputs, false), together = Run(**gpu, inputs, true);
    EXPECT_TRUE(SameBits(together.y, apart.y)) << rows;
    EXPECT_TRUE(SameBits(together.squares, apart.squares)) << rows;
    EXPECT_EQ(together.bases, apart.bases) << rows;
    EXPECT_EQ(together.tails, apart.tails) << rows;
    EXPECT_NE(Written(apart.rows), 0) << rows;
    // Otherwise two kernels ran.
    if (GetParam().together.contains(rows)) {
      EXPECT_EQ(Written(together.rows), 0) << rows;
    }
  }
}

// With few blocks, with many, and with so many rows that states are streamed.
TEST_P(PrepareAndRecurTest, AFactorOfTheGateHasTheBitsOfTheirProduct) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const uint32_t columns = GetParam().columns(), values = GetParam().values();
  for (const uint32_t rows : {2u, 20u, 70u}) {
    if (TooMany(rows)) continue;
    const Inputs inputs = RandomInputs(rows);
    const std::vector<float> factors = RandomFloats(rows, random_);
    Inputs product = inputs;
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t c = 0; c < values; ++c) product.x[size_t{r} * columns + c] *= factors[r];
    }
    const Result expected = Run(**gpu, product, false);
    const Result result = RunWithFactors(**gpu, inputs, factors);
    EXPECT_TRUE(SameBits(result.y, expected.y)) << rows;
    EXPECT_TRUE(SameBits(result.squares, expected.squares)) << rows;
    EXPECT_EQ(result.bases, expected.bases) << rows;
    EXPECT_EQ(result.tails, expected.tails) << rows;
    EXPECT_NE(Written(result.y), 0) << rows;
  }
}

// At all places of a chunk: in the first, after it, and where a row folds. The factor is given as
// squares and as a value.
TEST_P(ProjectAndRecurTest, HasTheBitsOfOneAfterTheOther) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  const Product product = RandomProduct(kProjected);
  for (const uint64_t position : {0, 1, 3, 14, 15, 16, 18, 31, 40, 47}) {
    Compare(**gpu, InputsAt(position), product, /*values=*/position % 2 == 1, /*projects=*/true);
  }
}

// Sums of zeros, some of them negative, are zeros and not -0.
TEST_P(ProjectAndRecurTest, HasTheBitsOfAnInputOfZeros) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  Product product = RandomProduct(kProjected);
  std::fill(product.input.begin(), product.input.end(), 0.0f);
  for (float& w : product.weights) w = -std::abs(w);
  Compare(**gpu, InputsAt(5), product, false, true);
  std::fill(product.input.begin(), product.input.end(), -0.0f);
  Compare(**gpu, InputsAt(5), product, false, true);
}

TEST_P(ProjectAndRecurTest, WithoutATokenNothingIsWritten) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  Inputs inputs = InputsAt(20);
  inputs.segments[0].tokens = 0;
  const Result result = Run(**gpu, inputs, RandomProduct(kProjected), Together::kProjects, false);
  EXPECT_EQ(result.bases, inputs.bases);
  EXPECT_EQ(result.tails, inputs.tails);
  EXPECT_EQ(Written(result.y), 0);
  EXPECT_EQ(Written(result.squares), 0);
}

// Products of other sizes, and recurrences of other shapes.
TEST_P(PrepareAndRecurTest, WhatTheKernelDeclinesHasTheBitsOfOneAfterTheOther) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kBFloat16);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  Compare(**gpu, InputsAt(18), RandomProduct(256), false, false);
  if (GetParam().projects) return;
  Compare(**gpu, InputsAt(18), RandomProduct(kProjected), false, false);
}

INSTANTIATE_TEST_SUITE_P(Shapes, PrepareAndRecurTest, testing::ValuesIn(Shapes()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Shapes, ProjectAndRecurTest, testing::ValuesIn(ProjectedShapes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
