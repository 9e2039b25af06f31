// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/text/thinking_splitter.h"

#include <gtest/gtest.h>

#include <string>

namespace rivulet {
namespace {

struct Case {
  bool starts_thinking;
  std::string text;
  std::string thinking;
  std::string answer;
};

// The parts do not depend on the pieces that the text comes in.
TEST(ThinkingSplitterTest, SplitsTextsInAnyPieces) {
  const Case cases[] = {
      {false, "plain", "", "plain"},
      {false, "<think>\nhm\n</think>\n\nYes.", "hm\n", "Yes."},
      {false, " \n<think>hm</think>Yes", "hm", "Yes"},
      {false, "a <think>b</think> c", "", "a <think>b</think> c"},
      {false, "<thin", "", "<thin"},
      {false, "<thinking>", "", "<thinking>"},
      {false, "<think>cut off", "cut off", ""},
      {false, "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"},
      {true, "hm</think>\nYes", "hm", "Yes"},
      {true, "\nhm </thi", "hm </thi", ""},
      {true, "a<think>b</think>c", "a<think>b", "c"},
      {false, "  ", "", "  "},
      {false, "", "", ""},
  };
  for (const Case& test : cases) {
    for (size_t piece = 1; piece <= test.text.size() + 1; ++piece) {
      ThinkingSplitter splitter(test.starts_thinking);
      ThinkingSplitter::Parts all;
      const auto add = [&](const ThinkingSplitter::Parts& parts) {
        all.thinking += parts.thinking;
        all.answer += parts.answer;
      };
      for (size_t at = 0; at < test.text.size(); at += piece) {
        add(splitter.Add(test.text.substr(at, piece)));
      }
      add(splitter.Finish());
      EXPECT_EQ(all.thinking, test.thinking) << test.text << " by " << piece;
      EXPECT_EQ(all.answer, test.answer) << test.text << " by " << piece;
    }
  }
}

TEST(ThinkingSplitterTest, HoldsBackNoMoreThanAMark) {
  ThinkingSplitter splitter(true);
  EXPECT_EQ(splitter.Add("one </").thinking, "one ");
  EXPECT_EQ(splitter.Add("two").thinking, "</two");
}

}  // namespace
}  // namespace rivulet
