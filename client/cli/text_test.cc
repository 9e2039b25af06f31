// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/text.h"

#include <gtest/gtest.h>

#include <clocale>
#include <string>

namespace rivulet::cli {
namespace {

TEST(TextTest, TerminalSafeKeepsOrdinaryText) {
  const std::string text = "caf\u00e9 \u6f22\u5b57 \U0001F600\n\tand so on\n";
  EXPECT_EQ(TerminalSafe(text), text);
}

TEST(TextTest, TerminalSafeShowsControlsInsteadOfSendingThem) {
  EXPECT_EQ(TerminalSafe("a\x1b[31mb\x1b]0;title\x07"), "a^[[31mb^[]0;title^G");
  EXPECT_EQ(TerminalSafe("a\rb\x7f"), "a^Mb^?");
  EXPECT_EQ(TerminalSafe(std::string("a\0b", 3)), "a^@b");
  EXPECT_EQ(TerminalSafe("a\u009b31m"), "a<U+009B>31m") << "C1: ESC [ to some terminals";
  EXPECT_EQ(TerminalSafe("a\u202eb\u2066c"), "a<U+202E>b<U+2066>c") << "reordering";
}

TEST(TextTest, TerminalSafeReplacesInvalidUtf8) {
  EXPECT_EQ(TerminalSafe("a\xff"), "a\ufffd");
  EXPECT_EQ(TerminalSafe("\x9b"), "\ufffd") << "a bare C1 byte";
  EXPECT_EQ(TerminalSafe("\xc0\xaf"), "\ufffd\ufffd") << "overlong";
  EXPECT_EQ(TerminalSafe("\xe6\xbc"), "\ufffd\ufffd") << "cut off";
  EXPECT_EQ(TerminalSafe("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "surrogate";
  EXPECT_EQ(TerminalSafe("\xe6\x1b[2J"), "\ufffd^[[2J") << "a lead byte hides no escape";
}

TEST(TextTest, OneLineHasNoLineEnds) { EXPECT_EQ(OneLine("a\nb\tc"), "a^Jb^Ic"); }

TEST(TextTest, KnowsUtf8) {
  EXPECT_TRUE(IsUtf8("caf\u00e9 \U0001F600"));
  EXPECT_FALSE(IsUtf8("caf\xe9"));
  EXPECT_FALSE(IsUtf8("\xf5\x80\x80\x80"));
}

TEST(TextTest, PadsAndCutsByColumns) {
  ASSERT_NE(std::setlocale(LC_CTYPE, "C.UTF-8"), nullptr);
  EXPECT_EQ(Padded("ab", 4), "ab  ");
  EXPECT_EQ(Padded("\u6f22\u5b57", 6), "\u6f22\u5b57  ") << "two columns each";
  EXPECT_EQ(Padded("abcdefgh", 6), "abc...");
  EXPECT_EQ(Padded("\u6f22\u5b57\u6f22\u5b57", 6), "\u6f22... ") << "no half characters";
  EXPECT_EQ(Padded("abc", 2), "..");
}

TEST(TextTest, ShortNumbers) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(2'202'009), "2.1 MiB");
  EXPECT_EQ(Bytes(uint64_t{5} << 50), "5120.0 TiB");
  EXPECT_EQ(Ago(0, 1'000'000), "never");
  EXPECT_EQ(Ago(1'000'000, 1'001'000), "just now");
  EXPECT_EQ(Ago(1'000'000, 900'000), "just now");
  EXPECT_EQ(Ago(1, 90'001), "90 s ago");
  EXPECT_EQ(Ago(1, 3'600'001), "60 min ago");
  EXPECT_EQ(Ago(1, 3 * 86'400'000 + 1), "3 d ago");
}

}  // namespace
}  // namespace rivulet::cli
