// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/draft_choice.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

using testing::Each;
using testing::ElementsAre;

DraftProspect Prospect(float chance, double gain = 16) {
  DraftProspect prospect;
  prospect.chances.fill(chance);
  prospect.count = kMostDrafts;
  prospect.gain = gain;
  return prospect;
}

size_t Sum(const std::vector<uint32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

// Steps of `rows` rows take a second and each draft `draft_seconds`.
class DraftChoiceTest : public testing::Test {
 protected:
  void Learn(size_t rows, double draft_seconds) {
    for (int i = 0; i < 4; ++i) cost_.Observe(rows, 0, 1.0);
    for (int i = 0; i < 8; ++i) choice_.Observe(rows, 4, 1.0 + 4 * draft_seconds);
    choice_.Observe(rows, 0, 1.0);
  }
  std::vector<uint32_t> Choose(const std::vector<DraftProspect>& rows) {
    return choice_.Choose(rows);
  }

  StepCost cost_{16};
  DraftChoice choice_{cost_};
};

TEST_F(DraftChoiceTest, NothingBeforeTheRowsAloneAreMeasuredThenAFew) {
  EXPECT_THAT(Choose({Prospect(0.9f)}), ElementsAre(0));
  for (int i = 0; i < 4; ++i) cost_.Observe(1, 0, 1.0);
  EXPECT_THAT(Choose({Prospect(0.9f)}), ElementsAre(4));
  EXPECT_THAT(Choose({Prospect(0.1f)}), ElementsAre(0));
}

TEST_F(DraftChoiceTest, ALikelyDraftThatCostsLittleIsCheckedAndAnUnlikelyOneIsNot) {
  Learn(1, 0.1);
  EXPECT_NEAR(choice_.AddedSeconds(1, 4), 0.4, 0.04);
  EXPECT_THAT(Choose({Prospect(0.95f)}), ElementsAre(testing::Ge(8u)));
  EXPECT_THAT(Choose({Prospect(0.5f)}),
              ElementsAre(testing::AllOf(testing::Ge(1u), testing::Le(3u))));
  EXPECT_THAT(Choose({Prospect(0.1f)}), ElementsAre(0));
}

TEST_F(DraftChoiceTest, NoneWhereATokenCostsWhatItGives) {
  Learn(64, 1.0 / 64);
  EXPECT_EQ(Sum(Choose(std::vector<DraftProspect>(64, Prospect(0.9f)))), 0u);
}

// Where a draft costs nearly nothing all of them are checked, but for a row that gains nothing.
TEST_F(DraftChoiceTest, NoRowIsSlowedByItsNeighbours) {
  Learn(8, 0.01);
  std::vector<DraftProspect> rows(8, Prospect(0.9f));
  EXPECT_GT(Sum(Choose(rows)), 40u);
  rows[3] = DraftProspect();
  EXPECT_LE(Sum(Choose(rows)), 3u) << "3 % of a step";
}

TEST_F(DraftChoiceTest, RowsAreMeasuredAloneNowAndThen) {
  Learn(1, 0.1);
  size_t alone = 0;
  for (int i = 0; i < 330; ++i) {
    const size_t drafts = Sum(Choose({Prospect(0.9f)}));
    alone += drafts == 0 ? 1 : 0;
    choice_.Observe(1, drafts, 1.0 + 0.1 * static_cast<double>(drafts));
  }
  EXPECT_EQ(alone, 10u);
}

// Where the first draft is nearly free and the second costs as much as the row, one is checked:
// what a few drafts together have cost says too much of the first.
TEST_F(DraftChoiceTest, WhatDraftsCostIsKnownByTheirNumber) {
  const auto seconds = [](size_t drafts) {
    return drafts == 0 ? 1.0 : 1.05 + static_cast<double>(drafts - 1);
  };
  for (int i = 0; i < 4; ++i) cost_.Observe(1, 0, 1.0);
  size_t last = 0;
  for (int i = 0; i < 400; ++i) {
    last = Sum(Choose({Prospect(0.6f)}));
    choice_.Observe(1, last, seconds(last));
    if (last == 0) cost_.Observe(1, 0, 1.0);
  }
  EXPECT_NEAR(choice_.AddedSeconds(1, 1), 0.05, 0.02);
  EXPECT_LE(last, 1u);
}

// A cost that was measured too high is corrected in time, and refused drafts cost little.
TEST_F(DraftChoiceTest, DraftsThatDidNotPayAreTriedAgain) {
  Learn(1, 2.0);
  size_t drafts = 0, first = 0;
  for (size_t i = 0; i < 2000; ++i) {
    const size_t now = Sum(Choose({Prospect(0.9f)}));
    if (i < 150) first += now;
    drafts += now;
    choice_.Observe(1, now, 1.0 + 0.1 * static_cast<double>(now));
  }
  EXPECT_LE(first, 6u);
  EXPECT_GT(drafts, 1000u);
}

}  // namespace
}  // namespace rivulet
