// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(Utf8Test, TakesEveryLengthOfCharacter) {
  for (const std::string text : {"", "a", "\x7f", "\u0080", "\u07ff", "\u0800", "\ue000", "\uffff",
                                 "\U00010000", "\U0010ffff", "Es war einmal ▁ ein 🐺"}) {
    EXPECT_EQ(ValidUtf8Length(text), text.size()) << text;
  }
  EXPECT_EQ(ValidUtf8Length(std::string_view("a\0b", 3)), 3u);
}

TEST(Utf8Test, StopsAtTheFirstByteThatIsWrong) {
  for (const std::string wrong :
       {"\x80", "\xbf",                                                      // a continuation alone
        "\xc0\x80", "\xc1\xbf",                                              // overlong
        "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",  // surrogates
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x96",
        "\xf0\x9f\x90",  // cut short
        "\xc3(", "\xe2(\x81", "\xe2\x96(", "\xf0\x9f\x90("}) {
    EXPECT_EQ(ValidUtf8Length("ab" + wrong), 2u) << testing::PrintToString(wrong);
    EXPECT_EQ(ValidUtf8Length(wrong), 0u) << testing::PrintToString(wrong);
  }
}

}  // namespace
}  // namespace rivulet
