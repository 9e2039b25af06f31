// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/word_wrap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>

#include "client/cli/text.h"
#include "kernels/base/test_seed.h"

namespace rivulet::cli {
namespace {

class WordWrapTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { UseUtf8Locale(); }
};

TEST_F(WordWrapTest, BreaksBetweenWords) {
  EXPECT_EQ(Wrapped("there was a miller", 10), "there was\na miller");
  EXPECT_EQ(Wrapped("there was a", 11), "there was a") << "a line may be full";
  EXPECT_EQ(Wrapped("there was a", 10), "there was\na");
  EXPECT_EQ(Wrapped("there  was", 6), "there\nwas") << "spaces at the break are dropped";
}

TEST_F(WordWrapTest, KeepsTheTextsOwnLinesAndIndents) {
  EXPECT_EQ(Wrapped(" was\n\n  a\n", 10), " was\n\n  a\n");
  EXPECT_EQ(Wrapped("ab \n cd ", 10), "ab\n cd");
  EXPECT_EQ(Wrapped("          x", 5), "x") << "an indent wider than the line";
}

TEST_F(WordWrapTest, BreaksAWordThatIsLongerThanALine) {
  EXPECT_EQ(Wrapped("abcdefghijkl", 5), "abcde\nfghij\nkl");
  EXPECT_EQ(Wrapped("x abcdefghijkl y", 5), "x\nabcde\nfghij\nkl y");
}

TEST_F(WordWrapTest, CountsColumnsAndNotBytes) {
  EXPECT_EQ(Wrapped("\u00e9\u00e9\u00e9 \u00e9\u00e9", 6), "\u00e9\u00e9\u00e9 \u00e9\u00e9");
  EXPECT_EQ(Wrapped("e\u0301e\u0301e\u0301 a", 5), "e\u0301e\u0301e\u0301 a") << "accents";
  EXPECT_EQ(Wrapped("\u6f22\u5b57\u6f22", 5), "\u6f22\u5b57\n\u6f22") << "two columns each";
  EXPECT_EQ(Wrapped("ab\u6f22", 3), "ab\n\u6f22");
  EXPECT_EQ(Wrapped("\u6f22\u5b57", 1), "\u6f22\n\u5b57") << "wider than the terminal";
  EXPECT_EQ(Wrapped("a\tb", 9), "a\tb");
  EXPECT_EQ(Wrapped("a\tb", 8), "a\nb");
}

TEST_F(WordWrapTest, HoldsBackAnUnfinishedWord) {
  WordWrap wrap;
  EXPECT_EQ(wrap.Add("no mo", 8), "no");
  EXPECT_EQ(wrap.Add("ne", 8), "");
  EXPECT_EQ(wrap.Add("y", 8), "");
  EXPECT_EQ(wrap.Add(" to", 8), " money");
  EXPECT_EQ(wrap.Finish(), "\nto");
  EXPECT_EQ(wrap.Finish(), "");
}

TEST_F(WordWrapTest, FollowsTheWidthOfTheWindow) {
  WordWrap wrap;
  EXPECT_EQ(wrap.Add("one two three ", 20), "one two three");
  EXPECT_EQ(wrap.Add("four ", 10), "\nfour") << "the line is already wider than that";
  EXPECT_EQ(wrap.Add("five six ", 20), " five six");
  EXPECT_EQ(wrap.Add("seven ", 0), " seven") << "no limit";
}

std::string WithoutSpace(std::string text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n'; };
  text.erase(std::remove_if(text.begin(), text.end(), space), text.end());
  return text;
}

size_t WidestLine(const std::string& text) {
  std::istringstream lines(text);
  size_t widest = 0;
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, DisplayWidth(line));
  }
  return widest;
}

TEST_F(WordWrapTest, PiecesMakeNoDifference) {
  std::mt19937_64 random(TestSeed());
  const std::string letters[] = {"a", "b", " ", " ", "\n", "\u00e9", "\u6f22", "e\u0301"};
  for (int round = 0; round < 200; ++round) {
    const size_t width = 2 + random() % 12;
    WordWrap wrap;
    std::string text, streamed;
    for (int piece = 0; piece < 20; ++piece) {
      std::string part;
      for (size_t i = random() % 6; i > 0; --i) part += letters[random() % std::size(letters)];
      text += part;
      streamed += wrap.Add(part, width);
    }
    streamed += wrap.Finish();
    EXPECT_EQ(streamed, Wrapped(text, width)) << text;
    EXPECT_LE(WidestLine(streamed), width) << text;
    EXPECT_EQ(WithoutSpace(streamed), WithoutSpace(text)) << "only white space is dropped";
  }
}

}  // namespace
}  // namespace rivulet::cli
