// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine's own duties on its own slots. That any split, company, thread count and fork give the
// same bits is checked one floor up, with sessions (server/session/session_bits_test.cc).
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/slot_bytes.h"
#include "server/engine/test_models.h"

namespace rivulet {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const LoadedModel> MakeModel(const TestModel& shape = TestModels()[0]) {
  auto model = MakeRandomModel(nlohmann::json::parse(shape.config), 1, LoadOptions());
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

class EngineTest : public testing::Test {
 protected:
  void SetUp() override { Start(MakeModel()); }

  void Start(std::shared_ptr<const LoadedModel> model) {
    EngineOptions options;
    options.threads = 2;
    options.state_memory = 16 << 20;
    auto engine = MakeCpuEngine(std::move(model), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  // A row of a fresh session at the end of the plan. Its base holds NaN: it must not be read.
  StepRow& AddRow(StepPlan& plan, const std::vector<uint32_t>& tokens) {
    StepRow& row = plan.rows.emplace_back();
    row.segment.first_token = plan.tokens.size();
    row.segment.tokens = tokens.size();
    row.segment.base_in = row.segment.base_out = *engine_->states().bases().Acquire();
    row.segment.tail = *engine_->states().tails().Acquire();
    std::ranges::fill(BaseBytes(engine_->states(), row.segment.base_in), std::byte{0xff});
    plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
    return row;
  }

  void Sample(StepRow& row, const SamplingParams& params, uint32_t index = 7) {
    row.samples = 1;
    row.spec.params = &params;
    row.spec.index = index;
    row.spec.position = row.segment.position + row.segment.tokens;
  }

  RowResult RunAlone(const std::vector<uint32_t>& tokens, const SamplingParams& params) {
    StepPlan plan;
    Sample(AddRow(plan, tokens), params);
    return engine_->Step(plan).rows[0];
  }

  std::unique_ptr<Engine> engine_;
};

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST_F(EngineTest, WarmUpLeavesNoSlotHeld) {
  EXPECT_EQ(engine_->states().bases().used(), 0u);
  EXPECT_EQ(engine_->states().tails().used(), 0u);
  EXPECT_EQ(engine_->vocab_size(), 101u);
}

TEST_F(EngineTest, AnEmptyPlanIsAnEmptyResult) { EXPECT_TRUE(engine_->Step({}).rows.empty()); }

TEST_F(EngineTest, ScoresAreLogProbabilitiesAndGreedyTakesTheBest) {
  StepPlan plan;
  const SamplingParams greedy = Greedy();
  StepRow& row = AddRow(plan, {5, 9, 30});
  row.score_targets = {9, 30, 77};
  row.score_top = kMaxTopLogprobs;
  Sample(row, greedy);
  const RowResult result = engine_->Step(plan).rows[0];
  ASSERT_TRUE(result.status.ok()) << result.status;
  ASSERT_EQ(result.scores.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(result.scores[i].chosen.token, row.score_targets[i]);
    EXPECT_LT(result.scores[i].chosen.logprob, 0.0f);
    EXPECT_EQ(result.scores[i].top.size(), kMaxTopLogprobs);
  }
  ASSERT_EQ(result.samples.size(), 1u);
  EXPECT_EQ(result.samples[0].token, result.scores[2].top[0].token);
}

TEST_F(EngineTest, ScoresOfAllTokensAddUpToOne) {
  double total = 0;
  for (uint32_t target = 0; target < 101; ++target) {
    StepPlan plan;
    AddRow(plan, {5, 9, 30}).score_targets = {9, 30, target};
    const StepRow row = plan.rows[0];
    total += std::exp(engine_->Step(plan).rows[0].scores[2].chosen.logprob);
    engine_->states().bases().Release(row.segment.base_in);
    engine_->states().tails().Release(row.segment.tail);
  }
  EXPECT_NEAR(total, 1.0, 1e-5);
}

TEST_F(EngineTest, MorePlacesThanOneBlockScoreAsOneByOne) {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 150; ++i) tokens.push_back(i * 37 % 101);
  StepPlan plan;
  AddRow(plan, tokens).score_targets.assign(tokens.begin() + 1, tokens.end());
  const RowResult whole = engine_->Step(plan).rows[0];
  ASSERT_EQ(whole.scores.size(), 149u);

  StepPlan one;
  AddRow(one, {0});
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    one.tokens = {tokens[i]};
    one.rows[0].segment.position = i;
    one.rows[0].score_targets = {tokens[i + 1]};
    const RowResult result = engine_->Step(one).rows[0];
    ASSERT_EQ(result.scores[0].chosen.logprob, whole.scores[i].chosen.logprob) << "place " << i;
  }
}

TEST_F(EngineTest, RandomNumbersDependOnIndexAndPositionNotOnTheRow) {
  const SamplingParams params;
  const std::vector<uint32_t> prompt = {4, 8, 15, 16, 23, 42};
  const uint32_t expected = RunAlone(prompt, params).samples[0].token;
  StepPlan plan;
  for (uint32_t i = 0; i < 9; ++i) Sample(AddRow(plan, prompt), params, i == 4 ? 7 : 1000 + i);
  const StepResult result = engine_->Step(plan);
  EXPECT_EQ(result.rows[4].samples[0].token, expected);
  std::vector<uint32_t> tokens;
  for (const RowResult& row : result.rows) tokens.push_back(row.samples[0].token);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_NE(tokens.front(), tokens.back()) << "the index changes nothing";
}

TEST_F(EngineTest, StopIdsAreNotDrawnWhileForbidden) {
  const SamplingParams greedy = Greedy();
  const uint32_t best = RunAlone({1, 2, 3}, greedy).samples[0].token;
  const std::vector<uint32_t> stops = {best};
  StepPlan plan;
  StepRow& row = AddRow(plan, {1, 2, 3});
  Sample(row, greedy);
  row.spec.forbid_stops = 1;
  row.spec.stop_ids = &stops;
  EXPECT_NE(engine_->Step(plan).rows[0].samples[0].token, best);
}

TEST_F(EngineTest, LogprobsOfTheSampledTokenComeFromTheRawLogits) {
  SamplingParams params;
  params.temperature = 0.3f;
  StepPlan plan;
  StepRow& row = AddRow(plan, {1, 2, 3});
  Sample(row, params);
  row.spec.logprobs = 5;
  row.score_targets = {2, 3, RunAlone({1, 2, 3}, params).samples[0].token};
  row.score_top = 5;
  const RowResult result = engine_->Step(plan).rows[0];
  ASSERT_EQ(result.samples.size(), 1u);
  const SampledToken& sample = result.samples[0];
  EXPECT_EQ(sample.logprob.chosen.token, sample.token);
  EXPECT_EQ(sample.logprob.chosen.logprob, result.scores[2].chosen.logprob);
  ASSERT_EQ(sample.logprob.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sample.logprob.top[i].token, result.scores[2].top[i].token);
    EXPECT_EQ(sample.logprob.top[i].logprob, result.scores[2].top[i].logprob);
  }
}

TEST_F(EngineTest, AnIdOutsideOfTheVocabularyFailsItsRowAlone) {
  const SamplingParams greedy = Greedy();
  const uint32_t expected = RunAlone({1, 2, 3}, greedy).samples[0].token;
  StepPlan plan;
  Sample(AddRow(plan, {1, 101}), greedy);
  Sample(AddRow(plan, {1, 2, 3}), greedy);
  AddRow(plan, {1}).score_targets = {4000000000};
  const StepResult result = engine_->Step(plan);
  EXPECT_EQ(result.rows[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.rows[0].status.message()), HasSubstr("token id 101"));
  EXPECT_EQ(result.rows[2].status.code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(result.rows[1].status.ok());
  EXPECT_EQ(result.rows[1].samples[0].token, expected);
}

TEST_F(EngineTest, LogitsThatAreNotFiniteFailTheirRowAlone) {
  const SamplingParams greedy = Greedy();
  const uint32_t expected = RunAlone({1, 2, 3}, greedy).samples[0].token;
  auto model = MakeModel();
  float* table = const_cast<float*>(static_cast<const float*>(model->embeddings.data));
  table[50 * model->embeddings.width] = std::numeric_limits<float>::quiet_NaN();
  Start(model);
  StepPlan plan;
  Sample(AddRow(plan, {1, 2, 3}), greedy);
  Sample(AddRow(plan, {1, 50}), greedy);
  Sample(AddRow(plan, {1, 2, 3}), greedy);
  const StepResult result = engine_->Step(plan);
  EXPECT_EQ(result.rows[1].status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.rows[1].status.message()), HasSubstr("row 1"));
  EXPECT_THAT(std::string(result.rows[1].status.message()), HasSubstr("position 1"));
  for (size_t r : {0, 2}) {
    ASSERT_TRUE(result.rows[r].status.ok()) << result.rows[r].status;
    EXPECT_EQ(result.rows[r].samples[0].token, expected);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map terabytes
// Lets this process map a little more memory than it has, while it lives.
class MemoryLimit {
 public:
  explicit MemoryLimit(uint64_t more) {
    getrlimit(RLIMIT_AS, &before_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit = {pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + more,
                          before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_;
};

TEST_F(EngineTest, AStepWithoutMemoryFailsItsRowsAndTheNextOneRuns) {
  const SamplingParams greedy = Greedy();
  const uint32_t expected = RunAlone({1, 2, 3}, greedy).samples[0].token;
  StepPlan plan;
  for (int i = 0; i < 8; ++i) AddRow(plan, std::vector<uint32_t>(kLongestSegment, 1));
  StepResult result;
  {
    const MemoryLimit limit(1 << 20);
    result = engine_->Step(plan);
  }
  ASSERT_EQ(result.rows.size(), 8u);
  for (const RowResult& row : result.rows) {
    EXPECT_EQ(row.status.code(), absl::StatusCode::kResourceExhausted) << row.status;
  }
  EXPECT_EQ(RunAlone({1, 2, 3}, greedy).samples[0].token, expected);
}
#endif

TEST_F(EngineTest, TooLittleStateMemoryIsRefusedByName) {
  EngineOptions options;
  options.state_memory = 1000;
  const auto engine = MakeCpuEngine(MakeModel(), options);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(engine.status().message()), HasSubstr("--state-memory is 1000 bytes"));
}

// The memory of one session of one chunk has fewer pages than the warm-up would otherwise fold
// into.
TEST_F(EngineTest, WarmsUpWithinThePagesThatThereAre) {
  const auto model = MakeModel(AttentionTestModels()[0]);
  Start(model);
  const StateCapacity& capacity = engine_->capacity();
  const uint64_t chunk = capacity.fold_interval;
  uint64_t bytes = 2 * capacity.base_bytes + capacity.tail_bytes;
  for (const PageCapacity& pages : capacity.pages) {
    bytes += MostPages(pages.kind, chunk, kLongestSegment) * pages.page_bytes;
  }
  const auto made = MakeCpuEngine(model, {.state_memory = bytes, .state_context = chunk});
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->capacity().tail_slots, 1u);
}

TEST_F(EngineTest, ARowWhosePagesDoNotFitItsPositionFailsAlone) {
  Start(MakeModel(AttentionTestModels()[0]));
  StepPlan plan;
  AddRow(plan, {1, 2, 3});
  const std::vector<SegmentPages> none(engine_->capacity().pages.size());
  AddRow(plan, {1, 2, 3}).segment.pages = none.data();
  AddRow(plan, std::vector<uint32_t>(20, 1)).segment.pages = none.data();
  const StepResult result = engine_->Step(plan);
  EXPECT_THAT(std::string(result.rows[0].status.message()), HasSubstr("no page tables"));
  EXPECT_EQ(result.rows[1].status, absl::OkStatus());  // no fold: nothing was to be written
  EXPECT_EQ(result.rows[2].status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace rivulet
