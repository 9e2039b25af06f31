// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/fair_share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "server/security/tenant.h"

namespace rivulet {
namespace {

using testing::ElementsAre;

// A step of n decode rows takes 1 + n / 10: as long as ten rows for the weights.
StepCost Known() {
  StepCost cost(16);
  for (size_t rows = 1; rows <= 4096; rows *= 2) {
    for (int i = 0; i < 3; ++i) cost.Observe(rows, 0, 1 + 0.1 * static_cast<double>(rows));
  }
  return cost;
}

class FairShareTest : public testing::Test {
 protected:
  void Add(const Tenant& tenant, size_t rows, uint32_t weight = 1) {
    for (size_t i = 0; i < rows; ++i) {
      rows_.push_back({.last_turn = rows_.size(), .tenant = &tenant, .weight = weight});
    }
  }
  void AddPrompts(const Tenant& tenant, size_t rows, uint32_t tokens) {
    for (size_t i = 0; i < rows; ++i) {
      rows_.push_back({.prompt_left = tokens, .last_turn = rows_.size(), .tenant = &tenant});
    }
  }
  std::map<std::string, size_t> TokensOf(const std::vector<PlannedRow>& run) const {
    std::map<std::string, size_t> tokens;
    for (const PlannedRow& row : run) tokens[rows_[row.row].tenant->name()] += row.tokens;
    return tokens;
  }
  std::vector<PlannedRow> Plan() { return PlanStep(TimePoint(), rows_, cost_, {}).run; }

  const StepCost cost_ = Known();
  Tenant red_{"red"}, blue_{"blue"}, green_{"green"};
  std::vector<RowView> rows_;
};

TEST(ShareByWeightTest, WhatOneLeavesGoesToTheOthers) {
  EXPECT_THAT(ShareByWeight(100, {{1000, 1}, {10, 1}}), ElementsAre(90, 10));
  EXPECT_THAT(ShareByWeight(100, {{1000, 3}, {1000, 1}}), ElementsAre(75, 25));
  EXPECT_THAT(ShareByWeight(100, {{20, 1}, {30, 1}, {1000, 2}}), ElementsAre(20, 26, 54));
  EXPECT_THAT(ShareByWeight(1, {{5, 1}, {5, 1}}), ElementsAre(1, 1));
  EXPECT_THAT(ShareByWeight(9, {{0, 1}, {50, 1}}), ElementsAre(0, 9));
  EXPECT_THAT(ShareByWeight(5, {}), ElementsAre());
}

TEST_F(FairShareTest, OneTenantRunsAllItsRows) {
  Add(red_, 1000);
  EXPECT_EQ(Plan().size(), 1000u);
}

TEST_F(FairShareTest, OneStreamBesideAThousandRunsAtHalfItsSpeed) {
  Add(red_, 1000);
  Add(blue_, 1);
  const auto run = Plan();
  EXPECT_EQ(TokensOf(run).at("blue"), 1u);
  // Twice what one row takes is 2.2: time for 12.
  EXPECT_EQ(TokensOf(run).at("red"), 11u);
  EXPECT_LE(cost_.DecodeSeconds(run.size()), 2 * cost_.DecodeSeconds(1));
}

TEST_F(FairShareTest, APromptDoesNotWaitForLongStepsOfAnother) {
  Add(red_, 1000);
  AddPrompts(blue_, 1, 64);
  const auto tokens = TokensOf(Plan());
  EXPECT_EQ(tokens.at("red"), 12u);
}

TEST_F(FairShareTest, WhereAllRowsFitTheyAllRun) {
  Add(red_, 40);
  Add(blue_, 30);
  EXPECT_EQ(Plan().size(), 70u);
}

TEST_F(FairShareTest, AWeightOfThreeGetsThreeTimesTheRows) {
  Add(red_, 1000, 3);
  Add(blue_, 1000, 1);
  Add(green_, 2, 1);
  auto tokens = TokensOf(Plan());
  EXPECT_EQ(tokens["green"], 2u);
  EXPECT_NEAR(static_cast<double>(tokens["red"]) / static_cast<double>(tokens["blue"]), 3, 0.3);
}

TEST_F(FairShareTest, RowsOfATenantTakeTurns) {
  Add(red_, 100);
  Add(blue_, 1);
  std::vector<size_t> steps(rows_.size());
  uint64_t turn = rows_.size();
  for (int step = 0; step < 100; ++step) {
    for (const PlannedRow& row : Plan()) {
      ++steps[row.row];
      rows_[row.row].last_turn = ++turn;
    }
  }
  EXPECT_EQ(steps.back(), 100u);
  EXPECT_THAT(std::vector<size_t>(steps.begin(), steps.end() - 1),
              testing::Each(testing::AllOf(testing::Ge(10u), testing::Le(12u))));
}

TEST_F(FairShareTest, UnknownTimesHoldNothingUp) {
  Add(red_, 1000);
  Add(blue_, 1);
  EXPECT_EQ(PlanStep(TimePoint(), rows_, StepCost(16), {}).run.size(), 1001u);
}

TEST_F(FairShareTest, PromptsOfAThousandDoNotHoldUpOne) {
  AddPrompts(red_, 1000, 400);
  AddPrompts(blue_, 1, 400);
  StepCost cost = Known();
  cost.Observe(0, 256, 1);
  const auto run = PlanStep(TimePoint(), rows_, cost, {.prompt_seconds = 1}).run;
  auto tokens = TokensOf(run);
  EXPECT_EQ(tokens["blue"], tokens["red"]);
  EXPECT_GE(tokens["blue"], 64u);
}

TEST_F(FairShareTest, ManyPromptsSlowAnothersStreamsByOneStep) {
  AddPrompts(red_, 1000, 400);
  Add(blue_, 1);
  StepCost cost = Known();
  const double one = cost.DecodeSeconds(1);
  for (int i = 0; i < 20; ++i) cost.Observe(1, 64, one + 64 * 0.1);
  cost.Observe(1, 0, one);
  const auto tokens = TokensOf(PlanStep(TimePoint(), rows_, cost, {}).run);
  EXPECT_LE(0.1 * static_cast<double>(tokens.at("red")), 1.2 * one);
  rows_.back().tenant = &red_;  // alone, it may be slowed by four
  EXPECT_GT(PlanStep(TimePoint(), rows_, cost, {}).run.size(), 1u);
}

// With random rows: each tenant runs something, no step is longer than the rule says, and nothing
// more would fit.
TEST_F(FairShareTest, RandomMixesKeepTheRule) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    rows_.clear();
    std::map<const Tenant*, std::pair<size_t, uint32_t>> counts;
    for (const Tenant* tenant : {&red_, &blue_, &green_}) {
      const size_t count = random() % 3 == 0 ? 0 : size_t{1} << (random() % 11);
      const auto weight = static_cast<uint32_t>(1 + random() % 4);
      if (count > 0) counts[tenant] = {count, weight};
      Add(*tenant, count, weight);
    }
    std::shuffle(rows_.begin(), rows_.end(), random);
    const auto run = Plan();
    auto tokens = TokensOf(run);
    double all = 0, longest = 1e9;
    for (const auto& [tenant, count] : counts) all += count.second;
    for (const auto& [tenant, count] : counts) {
      longest = std::min(longest, cost_.DecodeSeconds(count.first) * all / count.second);
      EXPECT_GE(tokens[tenant->name()], 1u) << seed;
    }
    if (counts.size() < 2) {
      EXPECT_EQ(run.size(), rows_.size()) << seed;
      continue;
    }
    const double slack = cost_.DecodeSeconds(run.size() - std::min<size_t>(run.size(), 3));
    EXPECT_LE(slack, longest) << seed << " round " << round;
    if (run.size() < rows_.size()) {
      EXPECT_GT(cost_.DecodeSeconds(run.size() + 3), longest) << seed << " round " << round;
    }
  }
}

}  // namespace
}  // namespace rivulet
