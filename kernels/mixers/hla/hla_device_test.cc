// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sums with a normaliser and sums that are read one after the other on the GPU: near those of the
// fake device, and the same bits for every cut of the tokens. Heads are wider than the fixtures'.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"
#include "kernels/device/device_step.h"
#include "kernels/device/fake_device.h"
#include "kernels/device/gpu_testing.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kSessions = 3;
constexpr size_t kTokens = 70;
// With so many, decode steps take the kernels of many segments, and with the smaller number those
// of many blocks. Session s has the inputs of session s % kSessions, and begins s % kFoldInterval
// steps after the first.
constexpr size_t kManySessions[] = {40, 600};

struct Case {
  std::string name;
  RecurrenceDeclaration declaration;
};

// Inputs of every token of every session: [session · tokens, columns].
struct Inputs {
  std::vector<float> q, k, v, decay, beta;
};

// Not negative, so that normalisers are not near zero; zeros in the padding.
std::vector<float> RandomHeads(size_t heads, size_t width, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0.0f, 2.0f / std::sqrt(static_cast<float>(width)));
  const size_t padded = PaddedColumns(width);
  std::vector<float> x(kSessions * kTokens * heads * padded);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % padded < width ? uniform(random) : 0.0f;
  return x;
}

std::vector<float> RandomColumns(size_t columns, float low, float high, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> x(kSessions * kTokens * columns);
  for (float& number : x) number = uniform(random);
  return x;
}

Inputs RandomInputs(const RecurrenceDeclaration& declaration, std::mt19937& random) {
  const HeadShape& shape = declaration.shape;
  const bool grouped_queries = declaration.sharing == Sharing::kKeysAndValues;
  const size_t queries = grouped_queries ? shape.heads : shape.groups;
  const size_t values = grouped_queries ? shape.groups : shape.heads;
  const bool channel = declaration.decay.kind == Decay::kChannel;
  const size_t decays = channel ? values * shape.padded_key() : shape.heads;
  return {RandomHeads(queries, shape.key_dim, random),
          RandomHeads(shape.groups, shape.key_dim, random),
          RandomHeads(values, shape.value_dim, random), RandomColumns(decays, -0.2f, 0.0f, random),
          RandomColumns(shape.heads, 0.0f, 1.0f, random)};
}

// One recurrence on one device, with slots for the sessions.
class Runner {
 public:
  Runner(Device& device, const RecurrenceDeclaration& declaration, const Inputs& inputs,
         size_t sessions = kSessions)
      : device_(device),
        sessions_(sessions),
        workspace_(&device),
        layout_(kFoldInterval, device.precision() == ProductPrecision::kFloat32 ? DType::kFloat32
                                                                                : DType::kBFloat16),
        recurrence_(declaration, layout_),
        inputs_(inputs),
        bases_(sessions) {
    std::iota(bases_.begin(), bases_.end(), 0u);
    slots_ = {.bases = Memory(2 * layout_.base_bytes()),
              .base_stride = layout_.base_bytes(),
              .tails = Memory(layout_.tail_bytes()),
              .tail_stride = layout_.tail_bytes()};
    const HeadShape& shape = recurrence_.shape();
    columns_ = shape.heads * shape.padded_value();
    out_.assign(sessions * kTokens * columns_, NAN);
  }

  // The outputs [session · tokens, columns] of all tokens, `piece` of each session at a time.
  std::vector<float> Run(size_t piece) {
    for (size_t first = 0; first < kTokens; first += piece) {
      const size_t count = std::min(piece, kTokens - first);
      Step(std::vector<size_t>(sessions_, first), std::vector<size_t>(sessions_, count),
           sessions_ * count);
    }
    return out_;
  }

  // The same a token at a time. Sessions are at different places of their chunks, and some have no
  // token in a step.
  std::vector<float> RunStaggered() {
    for (size_t i = 0; i < kTokens + kFoldInterval; ++i) {
      std::vector<size_t> firsts(sessions_), counts(sessions_);
      for (size_t s = 0; s < sessions_; ++s) {
        const size_t begin = s % kFoldInterval;
        counts[s] = i >= begin && i < begin + kTokens ? 1 : 0;
        firsts[s] = counts[s] == 0 ? 0 : i - begin;
      }
      Step(firsts, counts, sessions_);
    }
    return out_;
  }

 private:
  std::byte* Memory(size_t bytes) {
    const std::vector<std::byte> garbage(bytes * sessions_, std::byte{0xff});  // NaN
    auto* memory = static_cast<std::byte*>(*device_.Allocate(garbage.size()));
    EXPECT_TRUE(device_.Upload(memory, garbage.data(), garbage.size()).ok());
    return memory;
  }

  // A row for each token of a step: of a session, its token.
  struct Token {
    size_t session, index;
  };

  ConstFloatMatrix Take(const std::vector<float>& x, const std::vector<Token>& tokens) {
    const size_t columns = x.size() / (kSessions * kTokens);
    const FloatMatrix to = workspace_.Take(tokens.size(), columns);
    std::vector<float> rows(tokens.size() * to.stride);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const size_t from = tokens[i].session % kSessions * kTokens + tokens[i].index;
      std::copy_n(x.data() + from * columns, columns, rows.data() + i * to.stride);
    }
    EXPECT_TRUE(device_.Upload(to.data, rows.data(), rows.size() * sizeof(float)).ok());
    return to;
  }

  // Where a session's folds go: to its other base, if there are any.
  uint32_t Fold(uint32_t session, size_t first, size_t count) {
    const auto sessions = static_cast<uint32_t>(sessions_);
    const bool folds = (first + count) / kFoldInterval > first / kFoldInterval;
    if (folds) bases_[session] = (bases_[session] + sessions) % (2 * sessions);
    return bases_[session];
  }

  // counts[s] tokens of session s from firsts[s] on. Where there are as many rows as sessions, row
  // s is session s's, also if it has no token.
  void Step(const std::vector<size_t>& firsts, const std::vector<size_t>& counts, size_t rows) {
    workspace_.Reset();
    std::vector<DeviceSegment> segments;
    std::vector<uint32_t> owners;
    std::vector<Token> tokens;
    const bool single = rows == sessions_;
    for (uint32_t s = 0; s < sessions_; ++s) {
      segments.push_back({.first_token = static_cast<uint32_t>(tokens.size()),
                          .tokens = static_cast<uint32_t>(counts[s]),
                          .position = firsts[s],
                          .base_in = bases_[s],
                          .base_out = Fold(s, firsts[s], counts[s]),
                          .tail = s,
                          .turn = 0});
      for (size_t i = 0; i < std::max<size_t>(counts[s], single ? 1 : 0); ++i) {
        owners.push_back(s);
        tokens.push_back({s, firsts[s] + i});
      }
    }
    const size_t bytes = segments.size() * sizeof(segments[0]);
    auto* to = static_cast<DeviceSegment*>(workspace_.TakeBytes(bytes));
    auto* segment_of = static_cast<uint32_t*>(workspace_.TakeBytes(owners.size() * 4));
    EXPECT_TRUE(device_.Upload(to, segments.data(), bytes).ok());
    EXPECT_TRUE(device_.Upload(segment_of, owners.data(), owners.size() * 4).ok());
    const DeviceRows step_rows{to, segment_of, static_cast<uint32_t>(sessions_),
                               static_cast<uint32_t>(rows), single};
    const DeviceStep step{&device_, &workspace_, step_rows, slots_};
    const TokenInputs inputs{.q = Take(inputs_.q, tokens),
                             .k = Take(inputs_.k, tokens),
                             .v = Take(inputs_.v, tokens),
                             .decay = Take(inputs_.decay, tokens),
                             .beta = Take(inputs_.beta, tokens)};
    const FloatMatrix out = workspace_.Take(rows, columns_);
    recurrence_.Enqueue(step, inputs, out);
    Keep(out, tokens, counts);
  }

  void Keep(const FloatMatrix& out, const std::vector<Token>& tokens,
            const std::vector<size_t>& counts) {
    auto* host = static_cast<float*>(device_.AllocatePinned(out.rows * out.stride * 4));
    device_.CopyToHost(host, out.data, out.rows * out.stride * 4);
    EXPECT_TRUE(device_.Synchronize().ok());
    for (size_t i = 0; i < out.rows; ++i) {
      if (counts[tokens[i].session] == 0) continue;
      const size_t to = tokens[i].session * kTokens + tokens[i].index;
      std::copy_n(host + i * out.stride, columns_, out_.data() + to * columns_);
    }
    device_.FreePinned(host);
  }

  Device& device_;
  const size_t sessions_;
  DeviceWorkspace workspace_;
  StateLayout layout_;
  SumRecurrence recurrence_;
  const Inputs& inputs_;
  std::vector<uint32_t> bases_;  // of each session: one of two
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
      most = std::max(most, std::abs(double{a[i]}));
      difference = WorstDifference(difference, a[i], b[i]);
    }
    if (!std::isfinite(difference)) return INFINITY;
    worst = std::max(worst, difference / most);
  }
  return worst;
}

// Where the bits of the same outputs differ first; empty: nowhere.
std::string FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  const size_t columns = a.size() / (kSessions * kTokens);
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    return absl::StrCat("session ", i / columns / kTokens, " token ", i / columns % kTokens,
                        " column ", i % columns, ": ", a[i], " and ", b[i]);
  }
  return "";
}

class SumsOnGpuTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RIVULET_NEED_GPU();
    inputs_ = RandomInputs(GetParam().declaration, random_);
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
      EXPECT_EQ(FirstDifference(cut, whole), "") << "in pieces of " << piece;
    }
    for (const size_t many : kManySessions) CheckMany(**device, declaration, whole, many);
  }

  // Each of many sessions has the bits of the few.
  void CheckMany(Device& device, const RecurrenceDeclaration& declaration,
                 const std::vector<float>& few, size_t sessions) {
    const auto many = Runner(device, declaration, inputs_, sessions).RunStaggered();
    const size_t session = few.size() / kSessions;
    size_t different = 0;
    for (size_t s = 0; s < sessions; ++s) {
      const float* expected = few.data() + s % kSessions * session;
      different += std::memcmp(many.data() + s * session, expected, session * 4) == 0 ? 0 : 1;
    }
    EXPECT_EQ(different, 0u) << "of " << sessions << " sessions";
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

Case DeltaRule(std::string name, const HeadShape& shape, Decay decay) {
  return {std::move(name),
          {.shape = shape,
           .sharing = Sharing::kQueriesAndKeys,
           .decay = {.kind = decay},
           .rows = {{"k", shape.key_dim, {"k"}}, {"u", shape.value_dim}},
           .sums = {{.name = "S", .key = "k", .value = "u"}},
           .reads = {{"o", "S", "q"}},
           .delta = true}};
}

Case Decayed(Case plain, Decay decay) {
  plain.name += decay == Decay::kChannel ? "_channel" : "_scalar";
  plain.declaration.decay.kind = decay;
  return plain;
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
      Decayed(LinearAttention("linear_64", {16, 8, 64, 64}, false), Decay::kScalar),
      Decayed(LinearAttention("linear_64", {16, 8, 64, 64}, false), Decay::kChannel),
      Decayed(LinearAttention("linear_128", {8, 4, 128, 128}, false), Decay::kScalar),
      Decayed(LinearAttention("linear_128", {4, 4, 128, 128}, false), Decay::kChannel),
      Decayed(LinearAttention("linear_256", {2, 2, 256, 512}, false), Decay::kChannel),
      Decayed(LinearAttention("linear_256", {2, 1, 256, 192}, false), Decay::kScalar),
      // So few pieces a block with many sessions that its second run is given (sums_stream.cu):
      // with fp32 states, and with bf16 states.
      Decayed(LinearAttention("linear_few", {1, 1, 128, 128}, false), Decay::kScalar),
      DeltaRule("delta_few", {2, 2, 128, 128}, Decay::kScalar),
      DeltaRule("delta_64", {16, 16, 64, 48}, Decay::kScalar),
      DeltaRule("delta_128", {8, 4, 128, 128}, Decay::kScalar),
      DeltaRule("kda_64", {16, 8, 64, 64}, Decay::kChannel),
      DeltaRule("kda_128", {4, 4, 128, 128}, Decay::kChannel),
      DeltaRule("kda_256", {2, 2, 256, 256}, Decay::kChannel),
      Hla("masked", {.shape = square, .use_decay = true}),
      Hla("masked_plain", {.shape = square}),
      Hla("masked_slim", {.shape = {2, 2, 256, 16}, .use_decay = true}),
      Hla("masked_ridge", {.shape = square, .use_decay = true, .ridge_lambda = ridge}),
      Hla("masked_256", {.shape = {2, 2, 256, 128}, .use_decay = true}),
      Hla("serial_ridge", {.form = HlaForm::kSerial,
                           .shape = {4, 2, 64, 80},
                           .use_decay = true,
                           .ridge_lambda = ridge}),
      Hla("ahla_narrow",
          {.variant = HlaVariant::kAsymmetric, .shape = {2, 2, 128, 48}, .use_decay = true}),
      Hla("third_64", {.variant = third, .shape = square, .use_decay = true}),
      Hla("third_256", {.variant = third, .shape = {1, 1, 256, 256}, .use_decay = true}),
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
