// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/float8.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/dtype.h"

namespace rivulet {
namespace {

// All finite numbers of the format, ascending.
std::vector<float> Numbers() {
  std::vector<float> numbers;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) != 0x7f) numbers.push_back(Float8ToFloat(static_cast<uint8_t>(code)));
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

TEST(Float8Test, HasTheNumbersOfTheFormat) {
  EXPECT_EQ(Float8ToFloat(0x00), 0.0f);
  EXPECT_EQ(Float8ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(Float8ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(Float8ToFloat(0x38), 1.0f);
  EXPECT_EQ(Float8ToFloat(0x7e), 448.0f);
  EXPECT_EQ(Float8ToFloat(0xb9), -1.125f);
}

TEST(Float8Test, EveryNumberIsABFloat16AndRoundsToItself) {
  for (const float x : Numbers()) {
    EXPECT_EQ(BFloat16ToFloat(FloatToBFloat16(x)), x);
    EXPECT_EQ(Float8ToFloat(FloatToFloat8(x)), x);
  }
}

TEST(Float8Test, RoundsToTheNearestAndTiesToEven) {
  const std::vector<float> numbers = Numbers();
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    const float a = numbers[i], b = numbers[i + 1], middle = (a + b) / 2;
    if (a == b) continue;  // the zeros
    EXPECT_EQ(Float8ToFloat(FloatToFloat8(std::nextafter(middle, a))), a);
    EXPECT_EQ(Float8ToFloat(FloatToFloat8(std::nextafter(middle, b))), b);
    const uint8_t tie = FloatToFloat8(middle);
    EXPECT_EQ(tie & 1, 0);
    EXPECT_TRUE(Float8ToFloat(tie) == a || Float8ToFloat(tie) == b) << middle;
  }
  EXPECT_EQ(Float8ToFloat(FloatToFloat8(1e9f)), 448.0f);
  EXPECT_EQ(Float8ToFloat(FloatToFloat8(-500.0f)), -448.0f);
}

TEST(Float8Test, ARowKeepsItsLargestNumber) {
  const std::vector<float> row = {0.1f, -3.7f, 0.0f, 1.9f};
  std::vector<uint8_t> codes(row.size());
  const float scale = RoundToFloat8(row.data(), row.size(), codes.data());
  for (size_t i = 0; i < row.size(); ++i) {
    EXPECT_NEAR(Float8ToFloat(codes[i]) * scale, row[i], std::abs(row[i]) / 16);
  }
  EXPECT_NEAR(Float8ToFloat(codes[1]) * scale, -3.7f, 1e-6f);
  const std::vector<float> zeros(4, 0.0f);
  EXPECT_EQ(RoundToFloat8(zeros.data(), 4, codes.data()), 1.0f);
  EXPECT_EQ(codes, std::vector<uint8_t>(4, 0));
}

}  // namespace
}  // namespace rivulet
