// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/worst_difference.h"

#include <cmath>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(WorstDifferenceTest, IsTheLargest) {
  EXPECT_EQ(WorstDifference(0, 1, 3), 2);
  EXPECT_EQ(WorstDifference(2, 3, 2), 2);
  EXPECT_EQ(WorstDifference(2, 2, 6), 4);
}

TEST(WorstDifferenceTest, IsInfiniteFromTheFirstNaNOn) {
  const double worst = WorstDifference(1, NAN, 2);
  EXPECT_EQ(worst, INFINITY);
  EXPECT_EQ(WorstDifference(worst, 1, 2), INFINITY);
  EXPECT_EQ(WorstDifference(0, 2, NAN), INFINITY);
  EXPECT_EQ(WorstDifference(0, INFINITY, INFINITY), INFINITY);
}

}  // namespace
}  // namespace rivulet
