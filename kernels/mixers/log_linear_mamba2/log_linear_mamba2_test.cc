// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2.h"

#include <bit>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_recurrence.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_reference.h"
#include "kernels/mixers/mamba2/mamba2_recurrence.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/suite_slots.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/log_linear_mamba2/vectors/vectors.json";

// Decay rates A are drawn from [-fastest, -slowest).
struct CoreOptions {
  Mamba2Shape shape;
  uint32_t levels = 15;
  double slowest = 0.01, fastest = 0.5;
  double lambda_low = 0.0, lambda_high = 1.5;
};

Mamba2Constants MakeConstants(const CoreOptions& options) {
  const Mamba2Shape& shape = options.shape;
  Mamba2Constants constants{AlignedBuffer<float>(shape.heads),
                            AlignedBuffer<float>(shape.heads * shape.head_dim)};
  for (size_t i = 0; i < constants.a.size(); ++i) {
    constants.a[i] = GeneratedFloat("A", 0, i, -options.fastest, -options.slowest);
  }
  for (size_t i = 0; i < constants.d.size(); ++i) {
    constants.d[i] = GeneratedFloat("D", 0, i, 0.5, 1.5);
  }
  return constants;
}

// The recurrence alone: columns B | C | x | delta | lambda, each starting on a block.
class CoreSubject : public SuiteSubject {
 public:
  explicit CoreSubject(const CoreOptions& options)
      : options_(options),
        recurrence_(options.shape, options.levels, MakeConstants(options), layout_) {}

  std::vector<InputField> fields() const override {
    const Mamba2Shape& s = options_.shape;
    return {{"B", 0, 1, s.state_size, s.padded_state(), -1.0, 1.0},
            {"C", s.padded_state(), 1, s.state_size, s.padded_state(), -1.0, 1.0},
            {"x", x_column(), s.heads, s.head_dim, s.head_dim, -1.0, 1.0},
            {"delta", delta_column(), 1, s.heads, s.heads, 0.001, 1.0},
            {"lambda", lambda_column(), s.heads, options_.levels, options_.levels,
             options_.lambda_low, options_.lambda_high}};
  }
  size_t input_columns() const override {
    return lambda_column() + options_.shape.heads * options_.levels;
  }
  size_t output_columns() const override {
    return options_.shape.heads * options_.shape.padded_head();
  }
  const StateLayout& layout() const override { return layout_; }
  double tolerance() const override {
    return options_.shape.state_dtype == DType::kFloat32 ? 1e-5 : 2e-2;
  }
  void Run(std::span<const Segment> segments, const LayerState& state, ConstFloatMatrix inputs,
           FloatMatrix outputs, ThreadPool& pool) override {
    recurrence_.Run(segments, state, Split(inputs), outputs, pool);
  }
  std::vector<double> Reference(ConstFloatMatrix inputs) const override {
    return LogLinearMamba2Reference(options_.shape, options_.levels, recurrence_.constants(),
                                    Split(inputs));
  }
  // Row t of the outputs when `inputs` repeat.
  std::vector<double> ReferenceAt(ConstFloatMatrix inputs, uint64_t t) const {
    return LogLinearMamba2ReferenceAt(options_.shape, options_.levels, recurrence_.constants(),
                                      Split(inputs), t);
  }
  LogLinearMamba2Input Split(ConstFloatMatrix x) const {
    const Mamba2Shape& s = options_.shape;
    return {{x.Columns(x_column(), s.heads * s.head_dim), x.Columns(0, s.padded_state()),
             x.Columns(s.padded_state(), s.padded_state()), x.Columns(delta_column(), s.heads)},
            x.Columns(lambda_column(), s.heads * options_.levels)};
  }

 private:
  size_t x_column() const { return 2 * options_.shape.padded_state(); }
  size_t delta_column() const {
    return x_column() + PaddedColumns(options_.shape.heads * options_.shape.head_dim);
  }
  size_t lambda_column() const { return delta_column() + PaddedColumns(options_.shape.heads); }

  CoreOptions options_;
  StateLayout layout_;
  LogLinearMamba2Recurrence recurrence_;
};

SuiteCase Core(std::string name, const CoreOptions& options) {
  return {std::move(name), [=] { return std::make_unique<CoreSubject>(options); }};
}

// 300 tokens are more than 8 levels reach: all but the last three go on at their last level.
std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32, kNarrow = DType::kBFloat16;
  return {Core("levels1_n16_p16", {{3, 1, 16, 16, kFloat}, 1}),
          Core("levels3_n24_p24", {{4, 1, 24, 24, kFloat}, 3}),
          Core("levels5_n32_p64", {{3, 1, 32, 64, kFloat}, 5}),
          Core("levels6_n64_p32", {{4, 1, 64, 32, kFloat}, 6, 0.001, 0.1}),
          Core("levels8_n128_p64", {{4, 1, 128, 64, kFloat}, 8}),
          Core("levels15_n256_p20", {{2, 1, 256, 20, kFloat}, 15, 0.001, 0.05}),
          Core("levels15_n16_p128_fast_decay", {{2, 1, 16, 128, kFloat}, 15, 1.0, 16.0}),
          Core("levels64_n20_p256", {{2, 1, 20, 256, kFloat}, 64, 0.001, 0.01}),
          Core("levels7_n64_p64_bf16", {{3, 1, 64, 64, kNarrow}, 7, 0.01, 0.1}),
          Core("levels15_n48_p80_bf16", {{3, 1, 48, 80, kNarrow}, 15, 0.001, 0.05})};
}

INSTANTIATE_TEST_SUITE_P(LogLinearMamba2, MixerSuite, testing::ValuesIn(CoreCases()),
                         SuiteCaseName);

// All level weights one: Mamba-2.
TEST(LogLinearMamba2, IsMamba2WhenAllLevelsCountTheSame) {
  constexpr size_t kTokens = 130;
  const CoreOptions options{{2, 1, 32, 32, DType::kFloat32}, 7, 0.01, 0.2, 1.0, 1.0};
  CoreSubject subject(options);
  AlignedBuffer<float> numbers(kTokens * PaddedColumns(subject.input_columns()));
  const FloatMatrix inputs{numbers.data(), kTokens, subject.input_columns(),
                           PaddedColumns(subject.input_columns())};
  FillInputs(subject, 1, inputs);
  AlignedBuffer<float> outputs(2 * kTokens * subject.output_columns());
  const FloatMatrix ours{outputs.data(), kTokens, subject.output_columns(),
                         subject.output_columns()};
  const FloatMatrix plain{outputs.data() + kTokens * ours.stride, kTokens, ours.columns,
                          ours.stride};
  ThreadPool pool(1);
  StateLayout layout;
  const Mamba2Recurrence mamba2(options.shape, MakeConstants(options), layout);
  const auto run = [&](const StateLayout& of, auto&& step) {
    SuiteSlots slots(of, 1);
    slots.Fresh(0);
    SuiteSession session(slots, 0, 0);
    const Segment segment = session.Plan(0, kTokens);
    step(std::span(&segment, 1), slots.state());
  };
  run(subject.layout(), [&](auto segments, const LayerState& state) {
    subject.Run(segments, state, inputs, ours, pool);
  });
  run(layout, [&](auto segments, const LayerState& state) {
    mamba2.Run(segments, state, subject.Split(inputs).mamba2, plain, pool);
  });
  for (size_t t = 0; t < kTokens; ++t) {
    for (size_t i = 0; i < ours.columns; ++i) {
      EXPECT_NEAR(ours.row(t)[i], plain.row(t)[i], 1e-4) << "token " << t << ", column " << i;
    }
  }
}

// A million tokens: pages as the position asks for, and the outputs of the definition. The inputs
// repeat, so that they fit.
void RunFar(uint32_t levels, uint64_t tokens) {
  constexpr size_t kRows = 4096 + 48;  // not a power of two: repeats meet every place of a chunk
  CoreSubject subject({{1, 1, 4, 3, DType::kFloat32}, levels, 1e-6, 2e-6});
  AlignedBuffer<float> numbers(kRows * PaddedColumns(subject.input_columns()));
  const FloatMatrix inputs{numbers.data(), kRows, subject.input_columns(),
                           PaddedColumns(subject.input_columns())};
  FillInputs(subject, 1, inputs);
  AlignedBuffer<float> outputs(kRows * subject.output_columns());
  const FloatMatrix out{outputs.data(), kRows, subject.output_columns(), subject.output_columns()};
  ThreadPool pool(1);
  SuiteSlots slots(subject.layout(), 1);
  slots.Fresh(0);
  SuiteSession session(slots, 0, 0);
  uint64_t step = 0;
  double scale = 0, error = 0;
  while (session.position < tokens) {
    const uint64_t count = std::min<uint64_t>(kRows, tokens - session.position);
    const Segment segment = session.Plan(0, count);
    subject.Run(std::span(&segment, 1), slots.state(), inputs.Rows(0, count), out.Rows(0, count),
                pool);
    session.Commit();
    const uint64_t chunks = session.position / kFoldInterval;
    const uint64_t most = uint64_t{1} << (FenwickPageCount(levels) - 1);
    const size_t pages = std::popcount(chunks & (most - 1)) + (chunks >= most ? 1 : 0);
    ASSERT_EQ(session.pages.pages(), pages) << "at " << session.position;
    if (++step % 64 != 0 && session.position != tokens) continue;
    const std::vector<double> expected = subject.ReferenceAt(inputs, session.position - 1);
    for (size_t i = 0; i < expected.size(); ++i) {
      error = std::max(error, std::abs(out.row(count - 1)[i] - expected[i]));
      scale = std::max(scale, std::abs(expected[i]));
    }
  }
  testing::Test::RecordProperty("relative_error", std::to_string(error / scale));
  EXPECT_LE(error, 1e-5 * scale);
}

TEST(LogLinearMamba2, AMillionTokensFillAllButTheLastLevel) { RunFar(22, uint64_t{1} << 20); }
TEST(LogLinearMamba2, AMillionTokensFillEveryLevel) { RunFar(21, uint64_t{1} << 20); }
TEST(LogLinearMamba2, TheLastLevelHoldsWhatIsOlder) { RunFar(9, uint64_t{1} << 16); }

}  // namespace
}  // namespace rivulet
