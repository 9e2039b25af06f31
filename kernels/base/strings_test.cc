// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/strings.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(StringsTest, ConvertsViewsBothWaysWithoutCopying) {
  const std::string_view text("ab\0c", 4);
  const absl::string_view converted = ToAbsl(text);
  EXPECT_EQ(converted.data(), text.data());
  EXPECT_EQ(converted.size(), 4u);
  EXPECT_EQ(ToStd(converted), text);
  EXPECT_EQ(absl::StrCat("x", ToAbsl("y")), "xy");
  EXPECT_TRUE(ToAbsl(std::string_view()).empty());
}

}  // namespace
}  // namespace rivulet
