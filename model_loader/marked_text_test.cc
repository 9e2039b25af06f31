// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/marked_text.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MarkedTextTest, AppendingJoinsNeighbouringRanges) {
  MarkedText text = MarkedText::Of("ab", true);
  text.Append(MarkedText::Of("cd", true));
  text.Append("ef");
  text.Append(MarkedText::Of("", true));
  text.Append(MarkedText{"ghi", {{1, 2}}});
  EXPECT_EQ(text.bytes, "abcdefghi");
  EXPECT_THAT(text.plain, ElementsAre(TextRange{0, 4}, TextRange{7, 8}));
  EXPECT_THAT(MarkedText::Of("ab", false).plain, IsEmpty());
}

TEST(MarkedTextTest, APartKeepsItsMarks) {
  const MarkedText text = {"abcdef", {{1, 3}, {4, 5}}};
  const std::string_view view = text.bytes;
  EXPECT_THAT(text.Part(view.substr(2, 3)).plain, ElementsAre(TextRange{0, 1}, TextRange{2, 3}));
  EXPECT_THAT(text.Part(view.substr(3, 1)).plain, IsEmpty());
  EXPECT_EQ(text.Part(view), text);
  EXPECT_EQ(text.Part(""), MarkedText());
}

TEST(MarkedTextTest, RunsCutWhereMarksBeginAndEnd) {
  EXPECT_THAT(Runs({"", {}}), IsEmpty());
  const auto runs = Runs({"abcdef", {{0, 2}, {3, 5}}});
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_TRUE(runs[0].plain && !runs[1].plain && runs[2].plain && !runs[3].plain);
  EXPECT_EQ(runs[3].range, (TextRange{5, 6}));
}

// Against one flag for each byte.
TEST(MarkedTextTest, AgreesWithAFlagForEachByte) {
  std::mt19937_64 random(TestSeed());
  for (int turn = 0; turn < 2000; ++turn) {
    MarkedText text;
    std::vector<bool> flags;
    for (uint64_t i = random() % 6; i > 0; --i) {
      const bool plain = random() % 2 == 0;
      const size_t size = random() % 4;
      text.Append(MarkedText::Of(std::string(size, 'x'), plain));
      flags.insert(flags.end(), size, plain);
    }
    ASSERT_TRUE(IsSound(text));
    const size_t begin = random() % (flags.size() + 1);
    const size_t end = begin + random() % (flags.size() - begin + 1);
    bool any = false, all = true;
    for (size_t i = begin; i < end; ++i) {
      any = any || flags[i];
      all = all && flags[i];
    }
    EXPECT_EQ(Overlaps(text.plain, begin, end), any);
    if (begin < end) {
      EXPECT_EQ(Covers(text.plain, begin, end), all);
    }
    const PlainRanges slice = Slice(text.plain, begin, end);
    for (size_t i = begin; i < end; ++i) {
      EXPECT_EQ(Overlaps(slice, i - begin, i - begin + 1), flags[i]);
    }
  }
}

}  // namespace
}  // namespace rivulet
