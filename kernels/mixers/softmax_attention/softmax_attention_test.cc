// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/test_support.h"
#include "kernels/base/worst_difference.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"
#include "kernels/mixers/softmax_attention/softmax_attention_subject.h"
#include "kernels/mixers/suite_slots.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr char kVectors[] = "kernels/mixers/softmax_attention/vectors/vectors.json";

SuiteCase Core(std::string name, const SoftmaxAttentionShape& shape) {
  return {std::move(name), [shape] { return std::make_unique<AttentionSubject>(shape); }};
}

std::vector<SuiteCase> CoreCases() {
  constexpr DType kFloat = DType::kFloat32, kHalf = DType::kBFloat16;
  return {Core("d16", {3, 3, 16, 0, kFloat}),
          Core("d24", {2, 2, 24, 0, kFloat}),
          Core("d32_grouped", {4, 1, 32, 0, kFloat}),
          Core("d64_groups_of_3", {6, 2, 64, 0, kFloat}),
          Core("d72_groups_of_7", {7, 1, 72, 0, kFloat}),
          Core("d128", {2, 2, 128, 0, kFloat}),
          Core("d256_grouped", {4, 1, 256, 0, kFloat}),
          Core("d16_more_heads_than_a_unit", {70, 1, 16, 0, kFloat}),
          Core("window_1", {2, 1, 16, 1, kFloat}),
          Core("window_5", {2, 2, 16, 5, kFloat}),
          Core("window_16_grouped", {4, 1, 24, 16, kFloat}),
          Core("window_40_grouped", {8, 2, 32, 40, kFloat}),
          Core("unseen_1", {2, 1, 16, 0, kFloat, 0, 1}),
          Core("unseen_18_window_40", {4, 2, 16, 40, kFloat, 0, 18}),
          Core("d40_e16", {2, 2, 40, 0, kFloat, 16}),
          Core("d144_e100_grouped", {5, 1, 144, 0, kFloat, 100}),
          Core("d37_e29_bf16_window_20", {4, 2, 37, 20, kHalf, 29}),
          Core("d40_bf16", {2, 2, 40, 0, kHalf}),
          Core("d64_bf16_window_20", {4, 1, 64, 20, kHalf})};
}

INSTANTIATE_TEST_SUITE_P(SoftmaxAttention, MixerSuite,
                         testing::ValuesIn(BothIntervals(CoreCases())), SuiteCaseName);

TEST(SoftmaxAttention, CoreVectors) {
  CheckCoreVectors(kVectors, [](const nlohmann::json& p) {
    return std::make_unique<AttentionSubject>(SoftmaxAttentionShape{
        p.at("heads"), p.at("kv_heads"), p.at("head_dim"), p.at("window"), DType::kFloat32});
  });
}

// --- contexts of several spans -------------------------------------------------------------------

constexpr size_t kLong = 3 * kSpanTokens + 300;

struct LongRows {
  LongRows(size_t rows, size_t columns)
      : buffer(rows * PaddedColumns(columns)),
        view{buffer.data(), rows, columns, PaddedColumns(columns)} {}
  AlignedBuffer<float> buffer;
  FloatMatrix view;
};

// Outputs of a session of kLong tokens, given in pieces whose sizes `next` draws.
template <typename Next>
LongRows RunLong(CoreSubject& subject, ConstFloatMatrix inputs, size_t threads, Next&& next) {
  LongRows outputs(inputs.rows, subject.output_columns());
  SuiteSlots slots(subject.layout(), 1, 2 * kLong / kFoldInterval);
  SuiteSession session(slots, 0, 0);
  ThreadPool pool(threads);
  while (session.position < inputs.rows) {
    const size_t first = session.position;
    const size_t tokens = std::min<size_t>(next(), inputs.rows - first);
    const Segment segment = session.Plan(0, tokens);
    subject.Run(std::span(&segment, 1), slots.state(), inputs.Rows(first, tokens),
                outputs.view.Rows(first, tokens), pool);
    session.Commit();
  }
  return outputs;
}

// The first row that differs, or the number of rows.
size_t FirstDifference(ConstFloatMatrix a, ConstFloatMatrix b) {
  for (size_t t = 0; t < a.rows; ++t) {
    if (!std::equal(a.row(t), a.row(t) + a.columns, b.row(t))) return t;
  }
  return a.rows;
}

double ErrorOf(ConstFloatMatrix outputs, const std::vector<double>& reference) {
  const size_t first = outputs.rows - reference.size() / outputs.columns;
  double error = 0, scale = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double value = outputs.row(first + i / outputs.columns)[i % outputs.columns];
    error = WorstDifference(error, value, reference[i]);
    scale = std::max(scale, std::abs(reference[i]));
  }
  return error / scale;
}

class LongContext : public testing::TestWithParam<SoftmaxAttentionShape> {};

TEST_P(LongContext, MatchesTheDefinitionHoweverItIsCut) {
  AttentionSubject subject(GetParam());
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  LongRows inputs(kLong, subject.input_columns());
  FillInputs(subject, seed, inputs.view);
  const LongRows whole = RunLong(subject, inputs.view, 2, [] { return kLong; });
  EXPECT_LE(ErrorOf(whole.view, subject.ReferenceFrom(inputs.view, kLong - 50)), 1e-5);
  EXPECT_LE(ErrorOf(whole.view.Rows(0, kSpanTokens + 9),
                    subject.ReferenceFrom(inputs.view.Rows(0, kSpanTokens + 9), kSpanTokens - 9)),
            1e-5);
  const LongRows single = RunLong(subject, inputs.view, 3, [] { return size_t{1}; });
  EXPECT_EQ(FirstDifference(single.view, whole.view), kLong) << "token by token";
  // Pieces of one unit, in which a window's first span ends.
  const LongRows even = RunLong(subject, inputs.view, 2, [] { return size_t{20}; });
  EXPECT_EQ(FirstDifference(even.view, whole.view), kLong) << "20 tokens at a time";
  const LongRows cut = RunLong(subject, inputs.view, 2, [&]() -> size_t {
    return 1 + random() % (random() % 2 == 0 ? 30 : 400);
  });
  EXPECT_EQ(FirstDifference(cut.view, whole.view), kLong) << "in random pieces";
}

INSTANTIATE_TEST_SUITE_P(SoftmaxAttention, LongContext,
                         testing::Values(SoftmaxAttentionShape{4, 2, 24, 0, DType::kFloat32},
                                         SoftmaxAttentionShape{2, 1, 32, 1500, DType::kFloat32},
                                         SoftmaxAttentionShape{1, 1, 16, 1024, DType::kFloat32}));

// Sessions of different lengths in one step, some with one span and some with several, some with
// prompts: each as if alone.
TEST(SoftmaxAttention, LongNeighboursDoNotMatter) {
  AttentionSubject subject({4, 2, 16, 0, DType::kFloat32});
  constexpr size_t kLengths[] = {2100, 40, 1500, 1030}, kNext[] = {1, 1, 7, 90};
  LongRows inputs(kLong, subject.input_columns());
  FillInputs(subject, TestSeed(), inputs.view);
  const LongRows whole = RunLong(subject, inputs.view, 2, [] { return kLong; });
  SuiteSlots slots(subject.layout(), std::size(kLengths), kLong / kFoldInterval);
  std::vector<SuiteSession> sessions;
  ThreadPool pool(3);
  LongRows x(100, subject.input_columns()), y(100, subject.output_columns());
  LongRows ignored(kLong, subject.output_columns());
  std::vector<Segment> step;
  size_t rows = 0;
  for (uint32_t s = 0; s < std::size(kLengths); ++s) sessions.emplace_back(slots, s, s);
  for (size_t s = 0; s < std::size(kLengths); ++s) {
    const Segment segment = sessions[s].Plan(0, kLengths[s]);
    subject.Run(std::span(&segment, 1), slots.state(), inputs.view.Rows(0, kLengths[s]),
                ignored.view.Rows(0, kLengths[s]), pool);
    sessions[s].Commit();
    step.push_back(sessions[s].Plan(rows, kNext[s]));
    for (size_t t = 0; t < kNext[s]; ++t) {
      std::copy_n(inputs.view.row(kLengths[s] + t), x.view.columns, x.view.row(rows++));
    }
  }
  subject.Run(step, slots.state(), x.view.Rows(0, rows), y.view.Rows(0, rows), pool);
  for (const Segment& segment : step) {
    EXPECT_EQ(FirstDifference(y.view.Rows(segment.first_token, segment.tokens),
                              whole.view.Rows(segment.position, segment.tokens)),
              segment.tokens)
        << "at position " << segment.position;
  }
}

// Tiles differ with the registers there are; bits must not. The fallback may differ, by rounding.
TEST_P(LongContext, VectorWidthDoesNotMatter) {
  AttentionSubject subject(GetParam());
  LongRows inputs(kLong, subject.input_columns());
  FillInputs(subject, TestSeed(), inputs.view);
  const auto run = [&] { return RunLong(subject, inputs.view, 2, [] { return size_t{333}; }); };
  const LongRows expected = run();
  ForEachFusedTarget([&](const char* name) {
    EXPECT_EQ(FirstDifference(run().view, expected.view), kLong) << name;
  });
  OnBaselineTarget([&] {
    const LongRows outputs = run();
    EXPECT_LE(ErrorOf(outputs.view, subject.ReferenceFrom(inputs.view, kLong - 50)), 1e-5);
  });
}

// Scores far outside of what e^x can hold, larger in every span: only differences count.
TEST(SoftmaxAttention, LargeScoresNeitherOverflowNorVanish) {
  AttentionSubject subject({1, 1, 16, 0, DType::kFloat32});
  LongRows inputs(kLong, subject.input_columns());
  FillInputs(subject, TestSeed(), inputs.view);
  for (size_t t = 0; t < kLong; ++t) {
    const float size = 30.0f * static_cast<float>(1 + t / 100);
    for (size_t i = 0; i < 32; ++i) inputs.view.row(t)[i] = t % 2 == 0 ? size : -size;
  }
  const std::vector<double> reference = subject.ReferenceFrom(inputs.view, kLong - 50);
  for (const size_t piece : {size_t{1}, size_t{100}}) {
    const LongRows outputs = RunLong(subject, inputs.view, 1, [=] { return piece; });
    EXPECT_LE(ErrorOf(outputs.view, reference), 1e-5) << piece << " tokens at a time";
  }
}

// The engine tells a broken state by its logits.
TEST(SoftmaxAttention, ABrokenKeyIsNotPassedOver) {
  constexpr size_t kBroken = 5, kTokens = 40;
  AttentionSubject subject({1, 1, 16, 0, DType::kFloat32});
  LongRows inputs(kLong, subject.input_columns());
  FillInputs(subject, TestSeed(), inputs.view);
  inputs.view.row(kBroken)[16] = NAN;
  const LongRows outputs = RunLong(subject, inputs.view, 1, [] { return size_t{20}; });
  for (size_t t = 0; t < kTokens; ++t) {
    EXPECT_EQ(std::isnan(outputs.view.row(t)[0]), t >= kBroken) << t;
  }
}

}  // namespace
}  // namespace rivulet
