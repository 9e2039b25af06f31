// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Row preparation on the GPU: near the fake device's numbers, and the same bits for rows alone, for
// few rows and for many, which other kernels prepare.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
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

constexpr uint32_t kChunk = 16, kWindow = 4;

struct Shape {
  std::string name;
  std::vector<PreparedPart> parts;  // without pointers; y lies one after the other
  uint32_t channels = 0;            // of the convolution
  bool has_bias = false, has_rate = false;
  bool gated = false;
  bool scaled = false;  // PrepareCall::factors
};

PreparedPart Part(uint32_t heads, uint32_t width, uint32_t padded, int32_t channel,
                  DeviceHeadNorm norm = DeviceHeadNorm::kNone,
                  Activation f = Activation::kIdentity) {
  return {.heads = heads,
          .width = width,
          .padded = padded,
          .channel = channel,
          .f = f,
          .norm = norm,
          .scale = 0.5f,
          .norm_eps = 1e-3f};
}

// Convolved numbers in fours and one at a time, heads with norms, plain numbers; narrow and wide.
std::vector<Shape> Shapes() {
  using enum DeviceHeadNorm;
  std::vector<Shape> shapes;
  shapes.push_back({"mamba", {Part(1, 640, 640, 0), Part(1, 16, 16, 640)}, 656});
  shapes.back().parts.push_back(Part(1, 40, 40, -1, kNone, Activation::kSoftplus));
  shapes.push_back({"plain", shapes.back().parts, 656});
  for (PreparedPart& part : shapes.back().parts) part.scale = 1.0f;
  shapes.push_back({"silu", {Part(1, 256, 256, 0, kNone, Activation::kSilu)}, 256});
  shapes.push_back({"heads",
                    {Part(3, 64, 64, 0, kL2), Part(3, 64, 64, 192, kRms), Part(2, 100, 112, 384)},
                    584});
  shapes.push_back({"odd", {Part(3, 5, 16, 0, kL2), Part(1, 30, 30, 15)}, 45});
  shapes.push_back({"wide", {Part(2, 200, 208, 0, kL2), Part(1, 8, 8, 400)}, 408});
  shapes.push_back(
      {"functions",
       {Part(1, 64, 64, -1, kNone, Activation::kExp), Part(1, 64, 64, 0, kNone, Activation::kTanh)},
       64,
       true,
       true});
  shapes.push_back({"gated", {Part(1, 128, 128, 0)}, 128, false, false, true});
  for (const size_t i : {0, 1, 3, 4}) {
    shapes.push_back(shapes[i]);
    shapes.back().name += "_scaled";
    shapes.back().scaled = true;
  }
  return shapes;
}

struct Inputs {
  std::vector<DeviceSegment> segments;
  std::vector<float> x, gate;       // [tokens, columns]
  std::vector<float> bases, tails;  // [segments, ...]: each has its own slots
  std::vector<float> weight, bias, numbers;
  std::vector<float> factors;  // [tokens]
};

class PrepareTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override { RIVULET_NEED_GPU(); }

  uint32_t Channels() const { return static_cast<uint32_t>(PaddedColumns(GetParam().channels)); }
  size_t BaseNumbers() const { return (kWindow - 1) * Channels(); }
  size_t TailNumbers() const { return kChunk * Channels(); }
  // Those of the convolution, and behind them of the parts that have none.
  uint32_t Columns() const {
    uint32_t columns = Channels();
    for (const PreparedPart& part : GetParam().parts) {
      if (part.channel < 0) columns += PaddedColumns(part.heads * part.width);
    }
    return columns;
  }
  uint32_t OutputColumns() const {
    uint32_t columns = 0;
    for (const PreparedPart& part : GetParam().parts) {
      columns += PaddedColumns(part.heads * part.padded);
    }
    return columns;
  }

  Inputs RandomInputs(uint32_t rows) {
    Inputs inputs;
    for (uint32_t r = 0; r < rows; ++r) {
      inputs.segments.push_back({r, r % 7 == 3 ? 0u : 1u, random_() % 50, r, r, r, 0});
    }
    inputs.x = RandomFloats(size_t{rows} * Columns(), random_);
    inputs.gate = RandomFloats(size_t{rows} * Columns(), random_);
    inputs.bases = RandomFloats(rows * BaseNumbers(), random_);
    inputs.tails = RandomFloats(rows * TailNumbers(), random_);
    for (auto* state : {&inputs.bases, &inputs.tails}) {  // as bf16 keeps them
      for (float& x : *state) x = BFloat16ToFloat(FloatToBFloat16(x));
    }
    inputs.weight = RandomFloats(kWindow * Channels(), random_);
    inputs.bias = RandomFloats(Channels(), random_);
    inputs.numbers = RandomFloats(Channels(), random_);
    inputs.factors = RandomFloats(rows, random_);
    return inputs;
  }
  // `count` rows of these from `first` on, of inputs whose segments have one token or none.
  Inputs Some(const Inputs& all, uint32_t first, uint32_t count) {
    Inputs some = all;
    const auto cut = [&](std::vector<float>& numbers, size_t each) {
      numbers = {numbers.begin() + static_cast<ptrdiff_t>(first * each),
                 numbers.begin() + static_cast<ptrdiff_t>((first + count) * each)};
    };
    cut(some.x, Columns());
    cut(some.gate, Columns());
    cut(some.factors, 1);
    cut(some.bases, BaseNumbers());
    cut(some.tails, TailNumbers());
    some.segments.resize(count);
    for (uint32_t r = 0; r < count; ++r) {
      some.segments[r] = {
          r, all.segments[first + r].tokens, all.segments[first + r].position, r, r, r, 0};
    }
    return some;
  }

  // As the device keeps rows.
  static std::vector<uint16_t> Halves(const std::vector<float>& numbers) {
    std::vector<uint16_t> halves;
    for (const float x : numbers) halves.push_back(FloatToBFloat16(x));
    return halves;
  }
  static std::byte* State(Device& device, const std::vector<float>& numbers) {
    if (device.precision() == ProductPrecision::kFloat32) {
      return reinterpret_cast<std::byte*>(ToDevice(device, numbers));
    }
    return reinterpret_cast<std::byte*>(ToDevice(device, Halves(numbers)));
  }
  static std::vector<float> StateOf(Device& device, const std::byte* state, size_t count) {
    if (device.precision() == ProductPrecision::kFloat32) {
      return FromDevice(device, reinterpret_cast<const float*>(state), count);
    }
    std::vector<float> numbers;
    for (const uint16_t x : FromDevice(device, reinterpret_cast<const uint16_t*>(state), count)) {
      numbers.push_back(BFloat16ToFloat(x));
    }
    return numbers;
  }

  struct Result {
    std::vector<float> y, bases, tails;
  };
  Result Run(Device& device, const Inputs& inputs) {
    const Shape& shape = GetParam();
    const auto rows = static_cast<uint32_t>(inputs.x.size() / Columns());
    const auto segments = static_cast<uint32_t>(inputs.segments.size());
    const size_t bytes = device.precision() == ProductPrecision::kFloat32 ? 4 : 2;
    std::vector<uint32_t> segment_of(rows);
    for (uint32_t r = 0; r < segments && segments == rows; ++r) segment_of[r] = r;
    for (uint32_t r = 0; r < segments && segments != rows; ++r) {
      const DeviceSegment& segment = inputs.segments[r];
      std::fill_n(segment_of.begin() + segment.first_token, segment.tokens, r);
    }
    const FloatMatrix x = MatrixOn(device, inputs.x, rows, Columns());
    const FloatMatrix gate = MatrixOn(device, inputs.gate, rows, Columns());
    const FloatMatrix y =
        MatrixOn(device, std::vector<float>(size_t{rows} * OutputColumns()), rows, OutputColumns());
    PrepareCall call;
    call.rows = {ToDevice(device, inputs.segments), ToDevice(device, segment_of), segments, rows,
                 segments == rows};
    call.slots = {.bases = State(device, inputs.bases),
                  .base_stride = BaseNumbers() * bytes,
                  .tails = State(device, inputs.tails),
                  .tail_stride = TailNumbers() * bytes};
    call.convolution = {.x = x.data,
                        .x_stride = static_cast<uint32_t>(x.stride),
                        .weight = ToDevice(device, inputs.weight),
                        .bias = ToDevice(device, inputs.bias),
                        .channels = shape.channels,
                        .weight_stride = Channels(),
                        .window = kWindow,
                        .silu = !shape.name.starts_with("heads")};
    if (shape.gated) {
      call.convolution.gate = gate.data;
      call.convolution.gate_stride = static_cast<uint32_t>(gate.stride);
    }
    if (shape.scaled) call.factors = ToDevice(device, inputs.factors);
    const float* const numbers = ToDevice(device, inputs.numbers);
    uint32_t from = Channels(), to = 0;
    for (PreparedPart part : shape.parts) {
      part.x = part.channel < 0 ? x.data + from : x.data;
      part.x_stride = static_cast<uint32_t>(x.stride);
      part.y = y.data + to;
      part.y_stride = static_cast<uint32_t>(y.stride);
      if (shape.has_bias) part.bias = part.multiplier = numbers;
      if (shape.has_rate) part.rate = numbers, part.low = -2.0f, part.high = 1.5f;
      if (part.norm == DeviceHeadNorm::kRms) part.norm_weight = numbers;
      call.parts[call.part_count++] = part;
      if (part.channel < 0) from += PaddedColumns(part.heads * part.width);
      to += PaddedColumns(part.heads * part.padded);
    }
    device.Prepare(call);
    Result result{NumbersOf(device, y), StateOf(device, call.slots.bases, inputs.bases.size()),
                  StateOf(device, call.slots.tails, inputs.tails.size())};
    for (uint32_t r = 0; r < rows && segments == rows;
         ++r) {  // what rows without tokens have does not matter
      if (inputs.segments[r].tokens != 0) continue;
      std::fill_n(result.y.begin() + r * OutputColumns(), OutputColumns(), 0.0f);
    }
    return result;
  }

  std::mt19937_64 random_{TestSeed()};
};

TEST_P(PrepareTest, IsNearTheFakeDevice) {
  const auto gpu = OpenCudaDevice(ProductPrecision::kFloat32);
  ASSERT_TRUE(gpu.ok()) << gpu.status();
  FakeDevice fake;
  double worst = 0;
  for (const uint32_t rows : {1u, 50u, 701u}) {
    const Inputs inputs = RandomInputs(rows);
    const Result got = Run(**gpu, inputs), wanted = Run(fake, inputs);
    EXPECT_TRUE(SameBits(got.bases, wanted.bases)) << rows;
    EXPECT_TRUE(SameBits(got.tails, wanted.tails)) << rows;
    worst = std::max(worst, Distance(got.y, wanted.y));
  }
  std::printf("%s differs by %.2g\n", GetParam().name.c_str(), worst);
  EXPECT_LE(worst, 3e-5);
}

TEST_P(PrepareTest, ARowHasTheSameBitsInAnyCompany) {
  for (const auto precision : {ProductPrecision::kFloat32, ProductPrecision::kBFloat16}) {
    const auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    constexpr uint32_t kRows = 701;  // the last pair of tokens has one
    const Inputs all = RandomInputs(kRows);
    const Result together = Run(**gpu, all);
    for (uint32_t first = 0; first < kRows;) {
      const uint32_t count = std::min<uint32_t>(kRows - first, 1 + random_() % 90);
      const Result some = Run(**gpu, Some(all, first, count));
      const auto same = [&](const std::vector<float>& part, const std::vector<float>& whole,
                            size_t each) {
        return SameBits(part, std::span(whole).subspan(first * each, count * each));
      };
      ASSERT_TRUE(same(some.y, together.y, OutputColumns())) << first;
      ASSERT_TRUE(same(some.bases, together.bases, BaseNumbers())) << first;
      ASSERT_TRUE(same(some.tails, together.tails, TailNumbers())) << first;
      first += count;
    }
  }
}

TEST_P(PrepareTest, APromptHasTheBitsOfItsTokens) {
  for (const auto precision : {ProductPrecision::kFloat32, ProductPrecision::kBFloat16}) {
    const auto gpu = OpenCudaDevice(precision);
    ASSERT_TRUE(gpu.ok()) << gpu.status();
    constexpr uint32_t kTokens = 40;
    for (const uint64_t position : {0u, 5u, 31u}) {
      Inputs prompt = RandomInputs(kTokens), token = prompt;
      prompt.segments = {{0, kTokens, position, 0, 0, 0, 0}};
      for (Inputs* inputs : {&prompt, &token}) {
        inputs->bases.resize(BaseNumbers());
        inputs->tails.resize(TailNumbers());
      }
      const Result whole = Run(**gpu, prompt);
      for (uint32_t t = 0; t < kTokens; ++t) {
        token.segments = {{0, 1, position + t, 0, 0, 0, 0}};
        const auto row = [&](const std::vector<float>& numbers) {
          return std::span(numbers).subspan(t * Columns(), Columns());
        };
        token.x.assign(row(prompt.x).begin(), row(prompt.x).end());
        token.gate.assign(row(prompt.gate).begin(), row(prompt.gate).end());
        token.factors = {prompt.factors[t]};
        const Result step = Run(**gpu, token);
        const auto y = std::span(whole.y).subspan(t * OutputColumns(), OutputColumns());
        ASSERT_TRUE(SameBits(step.y, y)) << position << " " << t;
        token.bases = step.bases, token.tails = step.tails;
      }
      EXPECT_TRUE(SameBits(token.bases, whole.bases)) << position;
      // Of the tail, the rows behind the last border.
      const size_t kept = (position + kTokens) % kChunk * Channels();
      EXPECT_TRUE(SameBits(std::span(token.tails).first(kept), std::span(whole.tails).first(kept)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PrepareTest, testing::ValuesIn(Shapes()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
