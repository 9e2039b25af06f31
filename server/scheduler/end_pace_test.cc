// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/end_pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace rivulet {
namespace {

class EndPaceTest : public testing::Test {
 protected:
  void End(uint64_t count, double after, bool others_wait = true) {
    now_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(after));
    pace_.Note(count, now_, others_wait);
  }

  EndPace pace_;
  TimePoint now_;
};

TEST_F(EndPaceTest, IsNotKnownBeforeTheSecondEnd) {
  EXPECT_EQ(pace_.seconds(), 0);
  End(1, 5);
  EXPECT_EQ(pace_.seconds(), 0);
  End(1, 5);
  EXPECT_DOUBLE_EQ(pace_.seconds(), 5);
}

TEST_F(EndPaceTest, IsTheTimeBetweenEvenEnds) {
  for (int i = 0; i < 20; ++i) End(1, 0.5);
  EXPECT_NEAR(pace_.seconds(), 0.5, 1e-9);
}

// 100 requests in 10 s, 99 of which end a twentieth of a second after one.
TEST_F(EndPaceTest, CountsRequestsThatEndTogether) {
  for (int i = 0; i < 20; ++i) {
    End(1, 9.95);
    End(99, 0.05);
    if (i < 6) continue;  // when the first hundred began is not known, and they count for long
    EXPECT_NEAR(pace_.seconds(), 0.1, 0.01);
  }
  End(1, 9.95);
  EXPECT_LT(pace_.seconds(), 0.2) << "the next hundred have not ended yet";
}

TEST_F(EndPaceTest, ForgetsAnOldPace) {
  for (int i = 0; i < 30; ++i) End(1, 20);
  EXPECT_NEAR(pace_.seconds(), 20, 1e-9);
  for (int i = 0; i < 1800; ++i) End(1, 0.1);  // three minutes
  EXPECT_LT(pace_.seconds(), 0.3);
}

TEST_F(EndPaceTest, DoesNotCountTimeInWhichNoneWaits) {
  End(1, 1);
  End(1, 1);
  End(1, 1, /*others_wait=*/false);
  End(1, 1000);
  End(1, 1);
  EXPECT_NEAR(pace_.seconds(), 1, 1e-9);
}

}  // namespace
}  // namespace rivulet
