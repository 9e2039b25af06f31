// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/pages.h"

#include <bit>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

class CountingSource : public SlotSource {
 public:
  absl::StatusOr<uint32_t> Acquire() override {
    if (held_.size() == limit) return absl::ResourceExhaustedError("no page left");
    held_[next_] = 1;
    return next_++;
  }
  void Share(uint32_t slot) override { ++held_.at(slot); }
  void Release(uint32_t slot) override {
    if (--held_.at(slot) == 0) held_.erase(slot);
  }
  bool Shared(uint32_t slot) const override { return held_.at(slot) > 1; }
  size_t held() const { return held_.size(); }

  size_t limit = SIZE_MAX;

 private:
  std::map<uint32_t, int> held_;
  uint32_t next_ = 0;
};

void Advance(PageTable& table, uint64_t& position, size_t tokens) {
  const auto pages = table.Plan(position, tokens);
  ASSERT_TRUE(pages.ok()) << pages.status();
  table.Commit();
  position += tokens;
}

// With chunks of 16 and of 32 tokens.
class PagesTest : public testing::TestWithParam<uint32_t> {
 protected:
  static uint32_t C() { return GetParam(); }
  static PageKind Kind(PageRule rule, uint32_t levels, uint64_t window = 0) {
    return {rule, levels, window, C()};
  }
  const PageKind kManyLevels = Kind(PageRule::kFenwick, 17);
  const PageKind kFewLevels = Kind(PageRule::kFenwick, 10);
};

INSTANTIATE_TEST_SUITE_P(FoldIntervals, PagesTest, testing::Values(16, 32),
                         testing::PrintToStringParamName());

TEST_P(PagesTest, AFenwickTableHoldsAPageForEachBitOfTheChunks) {
  CountingSource source;
  PageTable table(kManyLevels, source);
  uint64_t position = 0;
  while (position < 1 << 20) {
    Advance(table, position, C());
    ASSERT_EQ(table.pages(), std::popcount(position / C())) << position;
    ASSERT_EQ(source.held(), table.pages());
  }
}

TEST_P(PagesTest, TheLastLevelAbsorbsWhatTheLevelsDoNotReach) {
  CountingSource source;
  PageTable table(kFewLevels, source);
  uint64_t position = 0;
  while (position < 1 << 18) {
    Advance(table, position, C());
    const uint64_t n = position / C();
    ASSERT_EQ(table.pages(), std::popcount(n % 512) + (n >= 512 ? 1 : 0)) << position;
  }
}

// What each page of a table is made of, followed through the folds of a plan.
using Contents = std::map<uint32_t, std::set<uint64_t>>;  // slot → chunks

void FollowFolds(const SegmentPages& pages, uint64_t chunk, size_t folds, Contents& contents) {
  for (size_t fold = 0; fold < folds; ++fold) {
    const uint32_t* before = pages.Table(fold);
    const uint32_t* after = pages.Table(fold + 1);
    const uint32_t made = CarryPage(chunk + fold, pages.levels);
    std::set<uint64_t> all{chunk + fold};
    for (uint32_t p = 0; p <= made; ++p) {
      if (before[p] != kNoPage)
        all.insert(contents.at(before[p]).begin(), contents[before[p]].end());
      ASSERT_NE(after[made], before[p]) << "a fold reads what it writes";
    }
    contents[after[made]] = all;
    for (uint32_t p = made + 1; p < pages.levels; ++p) {
      if (after[p] != before[p]) contents[after[p]] = contents.at(before[p]);
    }
  }
}

class RandomPagesTest : public testing::TestWithParam<std::tuple<PageRule, uint32_t>> {};

// Tables that fork, grow in random segments and are cancelled at random: each must hold the chunks
// that its position says, and no write may reach a page that another table sees.
TEST_P(RandomPagesTest, EveryTableHoldsItsOwnChunks) {
  const auto [rule, interval] = GetParam();
  std::mt19937_64 random(TestSeed());
  for (const uint32_t levels : {1u, 4u, 12u}) {
    const PageKind kind{rule, levels, 0, interval};
    CountingSource source;
    struct Row {
      PageTable table;
      uint64_t position;
    };
    std::vector<Row> rows;
    rows.push_back({PageTable(kind, source), 0});
    Contents contents;
    for (int round = 0; round < 400; ++round) {
      Row& row = rows[random() % rows.size()];
      const uint64_t action = random() % 10;
      if (action == 0 && rows.size() < 5) {
        rows.push_back({row.table.Fork(), row.position});
        continue;
      }
      if (action == 1 && rows.size() > 1) {
        std::vector<Row> kept;
        for (Row& other : rows) {
          if (&other != &row) kept.push_back(std::move(other));
        }
        rows.clear();
        for (Row& other : kept) rows.push_back(std::move(other));
        continue;
      }
      const size_t tokens = 1 + random() % 90;
      const auto pages = row.table.Plan(row.position, tokens);
      ASSERT_TRUE(pages.ok());
      if (action == 2) {
        row.table.Cancel();
        continue;
      }
      FollowFolds(*pages, row.position / interval, FoldsIn(row.position, tokens, interval),
                  contents);
      row.table.Commit();
      row.position += tokens;
      for (Row& other : rows) {
        const auto view = other.table.Plan(other.position, 1);
        const uint64_t n = other.position / interval;
        std::set<uint64_t> seen;
        for (uint32_t p = 0; p < levels; ++p) {
          ASSERT_EQ(view->Table(0)[p] != kNoPage, HasPage(n, p, levels));
          if (view->Table(0)[p] == kNoPage) continue;
          const auto& chunks = contents.at(view->Table(0)[p]);
          seen.insert(chunks.begin(), chunks.end());
        }
        ASSERT_EQ(seen.size(), n) << "table at position " << other.position;
        other.table.Cancel();
      }
    }
    rows.clear();
    EXPECT_EQ(source.held(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RandomPagesTest,
                         testing::Combine(testing::Values(PageRule::kFenwick,
                                                          PageRule::kRewrittenFenwick),
                                          testing::Values(16, 32)));

TEST_P(PagesTest, APageThatAForkHoldsIsNeverWritten) {
  CountingSource source;
  PageTable table(Kind(PageRule::kRewrittenFenwick, 8), source);
  uint64_t position = 0;
  Advance(table, position, 3 * C());  // pages 0 and 1
  PageTable fork = table.Fork();
  const auto pages = table.Plan(position, C() * 5);
  ASSERT_TRUE(pages.ok());
  const std::set<uint32_t> shared(pages->Table(0), pages->Table(0) + 2);
  for (size_t fold = 1; fold <= 5; ++fold) {
    for (uint32_t p = 0; p < 8; ++p) EXPECT_FALSE(shared.contains(pages->Table(fold)[p]));
  }
}

TEST_P(PagesTest, ASegmentTakesNoMorePagesThanMostPagesSays) {
  for (const PageKind& kind : {kFewLevels, Kind(PageRule::kRewrittenFenwick, 10),
                               Kind(PageRule::kAppended, 0), Kind(PageRule::kAppended, 0, 100)}) {
    constexpr size_t kSegment = 80;
    CountingSource source;
    PageTable table(kind, source);
    for (uint64_t position = 0; position < 40000; position += kSegment) {
      ASSERT_TRUE(table.Plan(position, kSegment).ok());
      ASSERT_LE(source.held(), MostPages(kind, position + kSegment, kSegment)) << position;
      table.Commit();
    }
  }
}

// What a table holds and what it says that it may still take never add up to more than before.
TEST_P(PagesTest, WhatIsHeldAndMissingNeverGrows) {
  std::mt19937_64 random(TestSeed());
  constexpr uint64_t kTokens = 6000, kSegment = 80;
  for (const PageKind& kind :
       {kFewLevels, Kind(PageRule::kRewrittenFenwick, 3), Kind(PageRule::kAppended, 0),
        Kind(PageRule::kAppended, 0, 5), Kind(PageRule::kAppended, 0, 100),
        Kind(PageRule::kAppended, 0, 100000)}) {
    CountingSource source;
    PageTable table(kind, source);
    uint64_t position = 0, all = table.Missing(0, kTokens, kSegment);
    EXPECT_EQ(all, MostPages(kind, kTokens, kSegment));
    while (position < kTokens) {
      const uint64_t tokens = std::min<uint64_t>(kTokens - position, 1 + random() % kSegment);
      ASSERT_TRUE(table.Plan(position, tokens).ok());
      ASSERT_LE(source.held(), all) << position;
      table.Commit();
      position += tokens;
      const uint64_t now = source.held() + table.Missing(position, kTokens, kSegment);
      ASSERT_LE(now, all) << position;
      all = now;
    }
  }
}

TEST_P(PagesTest, AForkOfAppendedPagesTakesOnlyThoseOfItsOwnTokens) {
  CountingSource source;
  PageTable all(Kind(PageRule::kAppended, 0), source), levels(kFewLevels, source);
  uint64_t position = 0;
  Advance(all, position, 100 * C());
  position = 0;
  Advance(levels, position, 100 * C());
  EXPECT_EQ(all.MissingInFork(position, position + 2 * C() + 8, 80), 2u);
  EXPECT_EQ(levels.MissingInFork(position, position + 2 * C() + 8, 80), 8u);
  EXPECT_EQ(levels.MissingInFork(position, position + C() - 1, 80), 0u);
  const PageTable fork = levels.Fork();
  EXPECT_EQ(fork.Missing(position, position + 2 * C() + 8, 80), 8u);
  EXPECT_EQ(levels.Missing(position, position + 2 * C() + 8, 80), 8u);
}

TEST_P(PagesTest, AppendedPagesStandInOrderAndLeaveWithTheWindow) {
  CountingSource source;
  PageTable table(Kind(PageRule::kAppended, 0, 40), source);
  uint64_t position = 0;
  for (int i = 0; i < 100; ++i) {
    const auto pages = table.Plan(position, 7);
    ASSERT_TRUE(pages.ok());
    const uint64_t oldest = position + 1 > 40 ? position + 1 - 40 : 0;
    EXPECT_LE(pages->first_page, oldest / C());
    EXPECT_EQ(pages->first_page + pages->count, (position + 7) / C());
    table.Commit();
    position += 7;
    EXPECT_LE(table.pages(), 40 / C() + 2);
  }
}

// A copy of an empty list has no place in memory at all.
TEST_P(PagesTest, AForkFitsWhereTheWindowHasLetEveryPageGo) {
  CountingSource source;
  const PageKind kind = Kind(PageRule::kAppended, 0, 1);
  PageTable table(kind, source);
  uint64_t position = 0;
  Advance(table, position, 2 * C() - 2);
  ASSERT_EQ(table.pages(), 0u);
  PageTable fork = table.Fork();
  for (const size_t tokens : {1, 2, 40}) {
    const auto pages = fork.Plan(position, tokens);
    ASSERT_TRUE(pages.ok());
    EXPECT_EQ(CheckPages(kind, *pages, position, tokens), absl::OkStatus());
    EXPECT_FALSE(CheckPages(kind, *pages, position + 10 * C(), tokens).ok());
    fork.Cancel();
  }
}

TEST_P(PagesTest, APageTableThatDoesNotFitThePositionIsNamed) {
  CountingSource source;
  for (const PageKind& kind :
       {kFewLevels, Kind(PageRule::kAppended, 0), Kind(PageRule::kAppended, 0, 40)}) {
    PageTable table(kind, source);
    uint64_t position = 0;
    Advance(table, position, 6 * C() + 4);
    const size_t tokens = 2 * C() + 8;
    const auto pages = table.Plan(position, tokens);
    ASSERT_TRUE(pages.ok());
    EXPECT_EQ(CheckPages(kind, *pages, position, tokens), absl::OkStatus());
    for (const uint64_t other : {position - C() - 4, position + C() + 4, position + 10 * C()}) {
      const absl::Status status = CheckPages(kind, *pages, other, tokens);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << other;
      EXPECT_NE(status.message().find("does not fit position"), absl::string_view::npos) << status;
    }
    EXPECT_FALSE(CheckPages(kind, SegmentPages(), position, tokens).ok());
    table.Cancel();
  }
  const PageKind other_levels = Kind(PageRule::kFenwick, 11);
  PageTable table(kFewLevels, source);
  EXPECT_FALSE(CheckPages(other_levels, *table.Plan(0, 1), 0, 1).ok());
}

TEST_P(PagesTest, AFoldMovesWhatItMakesTakesUpAndRewrites) {
  const PageKind rewritten = Kind(PageRule::kRewrittenFenwick, 17);
  EXPECT_EQ(PagesMovedByFold({}, 5), 0u);
  EXPECT_EQ(PagesMovedByFold(Kind(PageRule::kAppended, 0), 5), 1u);
  EXPECT_EQ(PagesMovedByFold(kManyLevels, 0b1100), 1u);
  EXPECT_EQ(PagesMovedByFold(kManyLevels, 0b1011), 3u);
  EXPECT_EQ(PagesMovedByFold(rewritten, 0b1011), 5u);
  EXPECT_EQ(PagesMovedByFold(Kind(PageRule::kFenwick, 1), 9), 2u);
}

TEST_P(PagesTest, AFailedPlanChangesNothing) {
  for (const PageKind& kind : {kFewLevels, Kind(PageRule::kAppended, 0)}) {
    CountingSource source;
    PageTable table(kind, source);
    uint64_t position = 0;
    Advance(table, position, 5 * C());
    const size_t held = source.held();
    source.limit = held + 1;
    EXPECT_FALSE(table.Plan(position, 64 * C()).ok());
    EXPECT_EQ(source.held(), held);
    EXPECT_EQ(table.pages(), held);
    source.limit = SIZE_MAX;
    Advance(table, position, 64 * C());
  }
}

}  // namespace
}  // namespace rivulet
