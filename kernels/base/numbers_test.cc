// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace rivulet {
namespace {

TEST(NumbersTest, WholeNumbersAreDecimals) {
  EXPECT_EQ(ReadNumber<uint32_t>("010"), 10u);
  EXPECT_EQ(ReadNumber<uint32_t>("0"), 0u);
  EXPECT_EQ(ReadNumber<uint32_t>("4294967295"), 4294967295u);
  EXPECT_EQ(ReadNumber<uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ReadNumber<int>("-5"), -5);
}

TEST(NumbersTest, NothingElseIsAWholeNumber) {
  for (const char* text :
       {"", "-1", "+1", " 1", "1 ", "0x10", "1.0", "1e3", "ten", "4294967296", "1,2"}) {
    EXPECT_EQ(ReadNumber<uint32_t>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ReadNumber<uint64_t>("18446744073709551616"), std::nullopt);
}

TEST(NumbersTest, FractionsAreDecimalsToo) {
  EXPECT_EQ(ReadNumber<double>("1.5"), 1.5);
  EXPECT_EQ(ReadNumber<double>("2e3"), 2000.0);
  EXPECT_EQ(ReadNumber<double>("-.5"), -0.5);
  EXPECT_EQ(ReadNumber<float>("010"), 10.0F);
  for (const char* text : {"", "0x10", "0x1p3", "inf", "nan", "+1", " 1", "1s", "1e999"}) {
    EXPECT_EQ(ReadNumber<double>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ReadNumber<float>("1e39"), std::nullopt);
}

}  // namespace
}  // namespace rivulet
