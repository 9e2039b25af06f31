// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/check.h"

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(CheckTest, GoesOnWhenTrue) {
  int evaluations = 0;
  RIVULET_CHECK(++evaluations == 1, "evaluated once");
  EXPECT_EQ(evaluations, 1);
}

TEST(CheckDeathTest, NamesPlaceConditionAndMessage) {
  EXPECT_DEATH(RIVULET_CHECK(1 + 1 == 3, "sums are wrong"),
               "check_test.cc:[0-9]+: CHECK failed: 1 \\+ 1 == 3: sums are wrong");
}

}  // namespace
}  // namespace rivulet
