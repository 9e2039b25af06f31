// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/step_times.h"

#include "gtest/gtest.h"

namespace rivulet {
namespace {

using std::chrono::microseconds;
constexpr microseconds kNone{0};

// A thread that sleeps as it is told while steps take `step`: how long it polled at the end, or by
// how much it came late (negative).
microseconds RunStep(StepTimes& times, microseconds step) {
  const auto slept = std::chrono::duration_cast<microseconds>(times.Sleep(0));
  times.Learn(0, step);
  return step - slept;
}

TEST(StepTimesTest, NothingIsSleptBeforeAStepIsKnown) {
  EXPECT_EQ(StepTimes(1).Sleep(0), StepTimes::Clock::duration::zero());
}

TEST(StepTimesTest, EqualStepsAreSleptThroughButForAMargin) {
  StepTimes times(1);
  RunStep(times, microseconds{4000});
  const microseconds polled = RunStep(times, microseconds{4000});
  EXPECT_GT(polled, microseconds{100});
  EXPECT_LT(polled, microseconds{200});
}

TEST(StepTimesTest, ShortStepsAreNotSleptThrough) {
  StepTimes times(1);
  RunStep(times, microseconds{1900});
  EXPECT_EQ(RunStep(times, microseconds{1900}), microseconds{1900});
}

TEST(StepTimesTest, OneLongStepMakesTheNextOnesNoLater) {
  StepTimes times(1);
  RunStep(times, microseconds{4000});
  RunStep(times, microseconds{20000});
  EXPECT_GE(RunStep(times, microseconds{4000}), kNone);
}

TEST(StepTimesTest, ShorterStepsMakeOneStepLate) {
  StepTimes times(1);
  RunStep(times, microseconds{30000});
  EXPECT_LT(RunStep(times, microseconds{3000}), kNone);
  EXPECT_GE(RunStep(times, microseconds{3000}), kNone);
}

TEST(StepTimesTest, LongerStepsAreLearnt) {
  StepTimes times(1);
  for (int i = 0; i < 100; ++i) RunStep(times, microseconds{i == 0 ? 3000 : 30000});
  EXPECT_LT(RunStep(times, microseconds{30000}), microseconds{2000});
}

TEST(StepTimesTest, KindsAreApart) {
  StepTimes times(2);
  times.Learn(1, microseconds{4000});
  EXPECT_EQ(times.Sleep(0), StepTimes::Clock::duration::zero());
  EXPECT_GT(times.Sleep(1), microseconds{3500});
}

}  // namespace
}  // namespace rivulet
