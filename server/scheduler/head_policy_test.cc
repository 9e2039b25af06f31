// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// With steps of the lengths that a test says. scheduler_head_test has the whole scheduler.
#include "server/scheduler/head_policy.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

class HeadPolicyTest : public testing::Test {
 protected:
  // A step of a second, with the head `cost` more, in which drafts save `saved`. Every session is
  // new, so that the head runs where it may.
  void Step(size_t rows, double cost, double saved) {
    const bool follows = policy_.follows();
    const double seconds = 1.0 + (follows ? cost : 0);
    policy_.NoteStep({.rows = rows,
                      .alone = true,
                      .followed = follows,
                      .seconds = seconds,
                      .saved = follows ? saved : 0});
    lost_ += seconds - 1.0 - (follows ? saved : 0);
    followed_ += follows ? 1 : 0;
  }
  void Steps(size_t count, size_t rows, double cost, double saved) {
    for (size_t i = 0; i < count; ++i) Step(rows, cost, saved);
  }

  HeadPolicy policy_;
  double lost_ = 0;
  size_t followed_ = 0;
};

TEST_F(HeadPolicyTest, AHeadThatIsNeverRightIsTriedSeldom) {
  Steps(10000, 64, 0.2, 0);
  EXPECT_LE(lost_, 0.02 * 10000);
  EXPECT_EQ(followed_, 3 * HeadPolicy::kTrial);
}

TEST_F(HeadPolicyTest, AHeadThatSavesMuchIsNeverLeftOut) {
  Steps(10000, 1, 0.2, 0.5);
  EXPECT_EQ(followed_, 10000u);
}

// What it takes is known after one pause, and until then too little is not trusted.
TEST_F(HeadPolicyTest, AHeadHasToSaveWhatItTakes) {
  Steps(10000, 8, 0.05, 0.1);
  EXPECT_EQ(followed_, 10000 - HeadPolicy::kPause);
  policy_ = {};
  followed_ = 0;
  Steps(10000, 8, 0.2, 0.1);
  EXPECT_EQ(followed_, 3 * HeadPolicy::kTrial);
}

TEST_F(HeadPolicyTest, WhatItTakesIsKnownForEachNumberOfRows) {
  Steps(HeadPolicy::kTrial + HeadPolicy::kPause, 8, 0.05, 0.1);
  Steps(HeadPolicy::kTrial, 8, 0.05, 0.1);
  EXPECT_TRUE(policy_.follows());
  Steps(HeadPolicy::kTrial, 64, 0.05, 0.1);
  EXPECT_FALSE(policy_.follows());
}

TEST_F(HeadPolicyTest, ADisturbedStepCountsForLittle) {
  Steps(HeadPolicy::kTrial + HeadPolicy::kPause, 8, 0.05, 0);
  policy_.NoteStep({.rows = 8, .alone = true, .followed = true, .seconds = 1000, .saved = 0});
  Steps(HeadPolicy::kTrial, 8, 0.05, 0.1);
  EXPECT_TRUE(policy_.follows());
}

TEST_F(HeadPolicyTest, AfterTheLoadHasFallenItIsTriedEarlier) {
  Steps(HeadPolicy::kTrial + 100, 64, 0.2, 0);
  ASSERT_FALSE(policy_.follows());
  Steps(HeadPolicy::kShortestPause, 32, 0.2, 0);
  EXPECT_TRUE(policy_.follows());
  Steps(HeadPolicy::kTrial + HeadPolicy::kPause - 150, 32, 0.2, 0);
  EXPECT_FALSE(policy_.follows()) << "it did not fall again";
}

TEST_F(HeadPolicyTest, StepsInWhichTheHeadDidNotRunAreNotPartOfATrial) {
  for (int i = 0; i < 10000; ++i) policy_.NoteStep({.rows = 1, .alone = true, .seconds = 1});
  EXPECT_TRUE(policy_.follows());
  Steps(HeadPolicy::kTrial, 1, 0.2, 0);
  EXPECT_FALSE(policy_.follows());
}

}  // namespace
}  // namespace rivulet
