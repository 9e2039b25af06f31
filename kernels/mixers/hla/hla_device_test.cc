// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sums with a normaliser and sums that are read one after the other on the GPU: near those of the
// fake device, and the same bits for every cut of the tokens. Heads are wider than the fixtures'.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kSessions = 3;
constexpr size_t kTokens = 70;

struct Case {
  std::string name;
  RecurrenceDeclaration declaration;
};

// q, k and v of every token of every session: [session · tokens, columns].
struct Inputs {
  std::vector<float> q, k, v;
};

// Not negative, so that normalisers are not near zero; zeros in the padding.
std::vector<float> RandomHeads(size_t heads, size_t width, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.0f, 2.0f / std::sqrt(static_cast<float>(width)));
  const size_t padded = PaddedColumns(width);
  std::vector<float> x(kSessions * kTokens * heads * padded);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % padded < width ? uniform(random) : 0.0f;
  return x;
}

Inputs RandomInputs(const HeadShape& shape, std::mt19937& random) {
  return {RandomHeads(shape.heads, shape.key_dim, random),
          RandomHeads(shape.groups, shape.key_dim, random),
          RandomHeads(shape.groups, shape.value_dim, random)};
}

// One recurrence on one device, with slots for the sessions.
class Runner {
 public:
  Runner(Device& device, const RecurrenceDeclaration& declaration, const Inputs& inputs)
      : device_(device),
        workspace_(&device),
        layout_(kFoldInterval, device.precision() == ProductPrecision::kFloat32 ? DType::kFloat32
                                                                                : DType::kBFloat16),
        recurrence_(declaration, layout_),
        inputs_(inputs) {
    slots_ = {.bases = Memory(layout_.base_bytes()),
              .base_stride = layout_.base_bytes(),
              .tails = Memory(layout_.tail_bytes()),
              .tail_stride = layout_.tail_bytes()};
    const HeadShape& shape = recurrence_.shape();
    columns_ = shape.heads * shape.padded_value();
    out_.assign(kSessions * kTokens * columns_, NAN);
  }

  // The outputs [session · tokens, columns] of all tokens, `piece` of each session at a time.
  std::vector<float> Run(size_t piece) {
    for (size_t first = 0; first < kTokens; first += piece) {
      Step(first, std::min(piece, kTokens - first));
    }
    return out_;
  }

 private:
  std::byte* Memory(size_t bytes) {
    const std::vector<std::byte> garbage(bytes * kSessions, std::byte{0xff});  // NaN
    auto* memory = static_cast<std::byte*>(*device_.Allocate(garbage.size()));
    EXPECT_TRUE(device_.Upload(memory, garbage.data(), garbage.size()).ok());
    return memory;
  }

  // Rows [first, first + count) of each session.
  ConstFloatMatrix Take(const std::vector<float>& x, size_t first, size_t count) {
    const size_t columns = x.size() / (kSessions * kTokens);
    const FloatMatrix rows = workspace_.Take(kSessions * count, columns);
    for (size_t i = 0; i < kSessions * count; ++i) {
      const size_t from = i / count * kTokens + first + i % count;
      EXPECT_TRUE(device_.Upload(rows.row(i), x.data() + from * columns, columns * 4).ok());
    }
    return rows;
  }

  void Step(size_t first, size_t count) {
    workspace_.Reset();
    std::vector<DeviceSegment> segments;
    std::vector<uint32_t> owners;
    for (uint32_t s = 0; s < kSessions; ++s) {
      const auto tokens = static_cast<uint32_t>(count);
      segments.push_back({.first_token = s * tokens,
                          .tokens = tokens,
                          .position = first,
                          .base_in = s,
                          .base_out = s,
                          .tail = s,
                          .unused = 0});
      owners.insert(owners.end(), count, s);
    }
    auto* rows = static_cast<DeviceSegment*>(workspace_.TakeBytes(kSessions * sizeof(segments[0])));
    auto* segment_of = static_cast<uint32_t*>(workspace_.TakeBytes(owners.size() * 4));
    EXPECT_TRUE(device_.Upload(rows, segments.data(), kSessions * sizeof(segments[0])).ok());
    EXPECT_TRUE(device_.Upload(segment_of, owners.data(), owners.size() * 4).ok());
    const DeviceRows step_rows{rows, segment_of, kSessions,
                               static_cast<uint32_t>(kSessions * count), count == 1};
    const DeviceStep step{&device_, &workspace_, step_rows, slots_};
    const TokenInputs inputs{Take(inputs_.q, first, count), Take(inputs_.k, first, count),
                             Take(inputs_.v, first, count)};
    const FloatMatrix out = workspace_.Take(kSessions * count, columns_);
    recurrence_.Enqueue(step, inputs, out);
    Keep(out, first, count);
  }

  void Keep(const FloatMatrix& out, size_t first, size_t count) {
    auto* host = static_cast<float*>(device_.AllocatePinned(out.rows * out.stride * 4));
    device_.CopyToHost(host, out.data, out.rows * out.stride * 4);
    EXPECT_TRUE(device_.Synchronize().ok());
    for (size_t i = 0; i < out.rows; ++i) {
      const size_t to = i / count * kTokens + first + i % count;
      std::copy_n(host + i * out.stride, columns_, out_.data() + to * columns_);
    }
    device_.FreePinned(host);
  }

  Device& device_;
  DeviceWorkspace workspace_;
  StateLayout layout_;
  SumRecurrence recurrence_;
  const Inputs& inputs_;
  DeviceSlots slots_;
  size_t columns_ = 0;
  std::vector<float> out_;
};

// The largest difference, in parts of the largest number of the token.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  const size_t columns = a.size() / (kSessions * kTokens);
  double worst = 0;
  for (size_t first = 0; first < a.size(); first += columns) {
    double most = 1e-30, difference = 0;
    for (size_t i = first; i < first + columns; ++i) {
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return INFINITY;
      most = std::max(most, std::abs(double{a[i]}));
      difference = std::max(difference, std::abs(double{a[i]} - b[i]));
    }
    worst = std::max(worst, difference / most);
  }
  return worst;
}

class SumsOnGpuTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    inputs_ = RandomInputs(GetParam().declaration.shape, random_);
  }

  void Check(ProductPrecision precision, DType state, double tolerance) {
    RecurrenceDeclaration declaration = GetParam().declaration;
    declaration.shape.state_dtype = state;
    FakeDevice fake;
    const std::vector<float> expected = Runner(fake, declaration, inputs_).Run(kTokens);
    auto device = OpenCudaDevice(precision);
    ASSERT_TRUE(device.ok()) << device.status();
    const std::vector<float> whole = Runner(**device, declaration, inputs_).Run(kTokens);
    const double distance = Distance(expected, whole);
    std::printf("%s, %s, %s states: %.2g off\n", GetParam().name.c_str(),
                precision == ProductPrecision::kFloat32 ? "fp32" : "bf16",
                state == DType::kFloat32 ? "fp32" : "bf16", distance);
    EXPECT_LE(distance, tolerance);
    for (const size_t piece : {1, 5, 16}) {
      const std::vector<float> cut = Runner(**device, declaration, inputs_).Run(piece);
      EXPECT_EQ(std::memcmp(cut.data(), whole.data(), whole.size() * 4), 0)
          << "in pieces of " << piece;
    }
  }

  std::mt19937 random_{TestSeed()};
  Inputs inputs_;
};

TEST_P(SumsOnGpuTest, IsNearTheFakeDeviceInFloat) {
  Check(ProductPrecision::kFloat32, DType::kFloat32, 1e-3);
}
TEST_P(SumsOnGpuTest, IsNearTheFakeDeviceInBFloat16) {
  Check(ProductPrecision::kBFloat16, DType::kFloat32, 5e-2);
}
TEST_P(SumsOnGpuTest, IsNearTheFakeDeviceWithBFloat16States) {
  Check(ProductPrecision::kBFloat16, DType::kBFloat16, 5e-2);
}

Case LinearAttention(std::string name, const HeadShape& shape, bool normalised) {
  return {std::move(name),
          {.shape = shape,
           .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
           .sums = {{.name = "S", .key = "k", .value = "v", .normaliser = normalised}},
           .reads = {{"o", "S", "q"}},
           .division = normalised ? Division::kReciprocal : Division::kNone,
           .denominator_eps = 1e-10f}};
}

Case Hla(std::string name, const HlaConfig& config) {
  std::vector<double> log_gamma;
  for (size_t h = 0; config.use_decay && h < config.shape.heads; ++h) {
    log_gamma.push_back(std::log(1.0 - std::exp2(-3.0 - static_cast<double>(h))));
  }
  return {std::move(name), HlaDeclaration(config, log_gamma)};
}

std::vector<Case> Cases() {
  const HeadShape narrow{4, 2, 40, 72}, wide{2, 2, 128, 128}, square{2, 2, 64, 64};
  const auto third = HlaVariant::kThird;
  const float ridge = 0.3f;
  return {
      LinearAttention("linear", {4, 2, 64, 64}, true),
      LinearAttention("linear_plain", {2, 2, 128, 256}, false),
      LinearAttention("linear_wide", {2, 1, 128, 192}, true),
      LinearAttention("linear_odd", {3, 3, 300, 40}, true),
      Hla("masked", {.shape = square, .use_decay = true}),
      Hla("masked_groups", {.shape = narrow, .ridge_lambda = ridge}),
      Hla("masked_norm", {.shape = wide, .normalize = true, .use_decay = true, .ridge_lambda = 1}),
      Hla("serial", {.form = HlaForm::kSerial, .shape = wide, .use_decay = true}),
      Hla("serial_groups", {.form = HlaForm::kSerial, .shape = narrow, .ridge_lambda = ridge}),
      Hla("none", {.form = HlaForm::kUnmasked, .shape = square, .normalize = true}),
      Hla("ahla", {.variant = HlaVariant::kAsymmetric, .shape = square, .use_decay = true}),
      Hla("ahla_norm", {.variant = HlaVariant::kAsymmetric, .shape = narrow, .normalize = true}),
      Hla("third", {.variant = third, .shape = narrow, .use_decay = true}),
      Hla("third_norm", {.variant = third, .shape = wide, .normalize = true}),
      Hla("paper", {.variant = third, .form = HlaForm::kPaper, .shape = square, .use_decay = true}),
      Hla("widest", {.shape = {1, 1, 512, 512}, .use_decay = true}),
  };
}

INSTANTIATE_TEST_SUITE_P(Declarations, SumsOnGpuTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
