// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/plan.h"

#include <algorithm>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/recurrence/state.h"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::IsEmpty;
using testing::Le;

const TimePoint kNow = TimePoint(std::chrono::seconds(100));

RowView Decode(uint64_t position) { return {.position = position}; }
RowView Prompt(uint32_t left, uint64_t position = 0, uint64_t last_turn = 0) {
  return {.position = position, .prompt_left = left, .last_turn = last_turn};
}

// What allows a step exactly `budget` prompt tokens, with and without decode rows.
StepCost CostFor(uint32_t budget, size_t fold_interval = 16) {
  const double room = 1 + 1e-9;
  StepCost cost(fold_interval);
  for (size_t rows = 1; rows <= 128; rows *= 2) {
    for (int i = 0; i < 2; ++i) cost.Observe(rows, 0, 1.0 * room);
  }
  cost.Observe(1, budget, 2.0);
  cost.Observe(0, budget, 3.0);  // a step of prompts alone may take three times what one row takes
  return cost;
}

TEST(PlanStepTest, NothingToDo) {
  const StepChoice choice = PlanStep(kNow, {}, StepCost(16), {});
  EXPECT_THAT(choice.run, IsEmpty());
  EXPECT_THAT(choice.expired, IsEmpty());
}

TEST(PlanStepTest, DecodeRowsComeFirstAndAllRun) {
  const std::vector<RowView> rows = {Prompt(5), Decode(7), Decode(9)};
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(16), {}).run,
              ElementsAre(PlannedRow{1, 1}, PlannedRow{2, 1}, PlannedRow{0, 5}));
}

TEST(PlanStepTest, APieceEndsAtTheCut) {
  RowView prompt = Prompt(500, 10);
  prompt.to_cut = 22;
  const std::vector<RowView> rows = {prompt, Prompt(500, 0)};
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(256), {}).run,
              ElementsAre(PlannedRow{0, 22}, PlannedRow{1, 224}));
  // Where the share ends before it, at a border as without a cut.
  EXPECT_THAT(PlanStep(kNow, std::span(rows).first(1), CostFor(16), {}).run,
              ElementsAre(PlannedRow{0, 6}));
}

TEST(PlanStepTest, AllDecodeRowsRunAndAPromptMoves) {
  std::vector<RowView> rows(100, Decode(3));
  rows.push_back(Prompt(500));
  // For all measured times: half as many prompt tokens as decode rows, here to a chunk's border.
  const StepChoice choice = PlanStep(kNow, rows, CostFor(16), {});
  ASSERT_EQ(choice.run.size(), 101u);
  EXPECT_EQ(choice.run.back(), (PlannedRow{100, 48}));
}

TEST(PlanStepTest, FullOutboxSitsOut) {
  std::vector<RowView> rows = {Decode(1), Decode(2), Prompt(40)};
  rows[0].outbox_full = true;
  rows[2].outbox_full = true;
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(64), {}).run, ElementsAre(PlannedRow{1, 1}));
}

TEST(PlanStepTest, ExpiredRowIsReportedEvenWhenParked) {
  std::vector<RowView> rows = {Decode(1), Decode(2), Prompt(40)};
  rows[0].deadline = kNow;
  rows[0].outbox_full = true;
  rows[2].deadline = kNow + std::chrono::nanoseconds(1);
  const StepChoice choice = PlanStep(kNow, rows, CostFor(64), {});
  EXPECT_THAT(choice.expired, ElementsAre(0u));
  EXPECT_THAT(choice.run, ElementsAre(PlannedRow{1, 1}, PlannedRow{2, 40}));
}

TEST(PlanStepTest, PiecesEndAtChunkBorders) {
  const std::vector<RowView> rows = {Prompt(1000, 5)};
  // 64 tokens from position 5 would end at 69; the border before it is 64.
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(64), {}).run, ElementsAre(PlannedRow{0, 59}));
  // A budget that reaches no border is used all the same: time is what counts.
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(7), {}).run, ElementsAre(PlannedRow{0, 7}));
}

TEST(PlanStepTest, ShortPromptsLeaveTheirShareToLongOnes) {
  const std::vector<RowView> rows = {Prompt(1000), Prompt(4), Prompt(1000)};
  // 132: 4 for the short one, 64 for each of the others.
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(132), {}).run,
              ElementsAre(PlannedRow{0, 64}, PlannedRow{1, 4}, PlannedRow{2, 64}));
}

TEST(PlanStepTest, FewPromptsAtOnceSoThatEachGetsALargePiece) {
  const std::vector<RowView> rows(5, Prompt(1000));
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(128), {}).run,
              ElementsAre(PlannedRow{0, 64}, PlannedRow{1, 64}));
  EXPECT_THAT(PlanStep(kNow, rows, CostFor(32), {}).run, ElementsAre(PlannedRow{0, 32}));
}

TEST(PlanStepTest, ManyShortPromptsShareAStep) {
  const std::vector<RowView> rows(20, Prompt(3));
  EXPECT_EQ(PlanStep(kNow, rows, CostFor(64), {}).run.size(), 20u);
}

// Of the prompts that ran in the same step, it must not always be the same one that is chosen.
TEST(PlanStepTest, TurnsGoRoundWhateverTheNumberOfPrompts) {
  for (size_t count = 2; count < 20; ++count) {
    std::vector<RowView> rows(count, Prompt(100000));
    std::vector<uint64_t> served(count, 0), since(count, 0);
    uint64_t turn = 0;
    for (int step = 1; step <= 100; ++step) {
      for (const PlannedRow& planned : PlanStep(kNow, rows, CostFor(112), {}).run) {
        served[planned.row] += planned.tokens;
        rows[planned.row].position += planned.tokens;
        rows[planned.row].prompt_left -= planned.tokens;
        ++turn;
        since[planned.row] += planned.tokens;
        if (since[planned.row] < kPromptTurnTokens) continue;
        since[planned.row] = 0;
        rows[planned.row].last_turn = turn;
      }
      const auto [least, most] = std::minmax_element(served.begin(), served.end());
      ASSERT_LE(*most - *least, 2 * kPromptTurnTokens + 112) << count;
    }
  }
}

// What must hold for any rows; the rows are random and the seed is printed.
TEST(PlanStepTest, InvariantsOnRandomRows) {
  std::mt19937_64 random(TestSeed());
  const auto below = [&](uint64_t limit) { return random() % limit; };
  for (int round = 0; round < 20000; ++round) {
    std::vector<RowView> rows(below(12));
    for (RowView& row : rows) {
      row = {.position = below(100),
             .prompt_left = static_cast<uint32_t>(below(2) * below(200)),
             .outbox_full = below(4) == 0,
             .last_turn = below(9)};
      if (below(8) == 0) row.deadline = kNow - std::chrono::seconds(below(2));
    }
    const size_t interval = below(2) == 0 ? 16 : 32;
    const StepCost cost = CostFor(static_cast<uint32_t>(1 + below(300)), interval);
    const StepChoice choice = PlanStep(kNow, rows, cost, {});
    size_t prompts = 0, prompt_tokens = 0, decoding = 0;
    std::vector<int> runs(rows.size(), 0);
    for (const PlannedRow& planned : choice.run) {
      const RowView& row = rows[planned.row];
      ++runs[planned.row];
      ASSERT_FALSE(row.outbox_full);
      ASSERT_GT(row.deadline, kNow);
      ASSERT_GT(planned.tokens, 0u);
      if (row.prompt_left == 0) {
        ASSERT_EQ(planned.tokens, 1u);
        ++decoding;
        continue;
      }
      ASSERT_LE(planned.tokens, row.prompt_left);
      if (planned.tokens < row.prompt_left && planned.tokens >= interval) {
        ASSERT_EQ((row.position + planned.tokens) % interval, 0u);
      }
      ++prompts;
      prompt_tokens += planned.tokens;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_LE(runs[i], 1);
      const bool may_run = !rows[i].outbox_full && rows[i].deadline > kNow;
      if (may_run && rows[i].prompt_left == 0) {
        ASSERT_EQ(runs[i], 1);
      }
    }
    const auto waiting =
        static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [](const RowView& row) {
          return row.prompt_left > 0 && !row.outbox_full && row.deadline > kNow;
        }));
    ASSERT_LE(prompt_tokens, cost.PromptTokens(decoding, waiting, {}));
    ASSERT_EQ(prompts > 0, waiting > 0);
  }
}

}  // namespace
}  // namespace rivulet
