// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/thinking.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rivulet::cli {
namespace {

using testing::ElementsAre;
using Part = ThinkingSplitter::Part;

std::vector<Part> Split(const std::string& text, bool thinking, size_t piece) {
  ThinkingSplitter splitter;
  splitter.Begin(thinking);
  std::vector<Part> all;
  const auto add = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      EXPECT_FALSE(part.text.empty());
      if (all.empty() || all.back().thinking != part.thinking) all.push_back({"", part.thinking});
      all.back().text += part.text;
    }
  };
  for (size_t i = 0; i < text.size(); i += piece) add(splitter.Add(text.substr(i, piece)));
  add(splitter.Finish());
  return all;
}

// However the text is cut.
TEST(ThinkingSplitterTest, TellsThinkingFromTheAnswer) {
  for (size_t piece = 1; piece < 30; ++piece) {
    EXPECT_THAT(
        Split("a <think>b</think> c <", false, piece),
        ElementsAre(Part{"a ", false}, Part{"<think>b</think>", true}, Part{" c <", false}));
    EXPECT_THAT(Split("b</thin</think>c</think>", true, piece),
                ElementsAre(Part{"b</thin</think>", true}, Part{"c</think>", false}));
    EXPECT_THAT(Split("<think>a</think><think>b", false, piece),
                ElementsAre(Part{"<think>a</think><think>b", true}));
    EXPECT_THAT(Split("1 < 2 <thin", false, piece), ElementsAre(Part{"1 < 2 <thin", false}));
  }
}

}  // namespace
}  // namespace rivulet::cli
