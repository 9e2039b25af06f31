// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/merge_table.h"

#include <map>
#include <random>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

using Pair = std::pair<uint32_t, uint32_t>;
using Merges = std::map<Pair, MergeTable::Merge>;

constexpr uint32_t kTokens = 60;

// Random merges; many come twice.
Merges AddMerges(size_t count, std::mt19937& random, MergeTable* table) {
  Merges merges;
  for (uint32_t rank = 0; rank < count; ++rank) {
    const Pair pair = {random() % kTokens, random() % kTokens};
    const uint32_t joined = random();
    table->Add(pair.first, pair.second, joined);
    merges[pair] = {rank, joined};
  }
  return merges;
}

void ExpectAll(const MergeTable& table, Merges merges) {
  for (uint32_t left = 0; left < kTokens; ++left) {
    for (uint32_t right = 0; right < kTokens; ++right) {
      const auto known = merges.find({left, right});
      const MergeTable::Merge found = table.Find(left, right);
      const bool has = known != merges.end();
      ASSERT_EQ(found.rank, has ? known->second.rank : MergeTable::kNoRank);
      if (has) {
        ASSERT_EQ(found.joined, known->second.joined);
      }
    }
  }
  table.ForEach([&](uint32_t left, uint32_t right, uint32_t joined) {
    const auto known = merges.find({left, right});
    ASSERT_NE(known, merges.end()) << "a merge that was not added, or is there twice";
    EXPECT_EQ(joined, known->second.joined);
    merges.erase(known);
  });
  EXPECT_TRUE(merges.empty());
}

TEST(MergeTableTest, FindsTheLastMergeOfAPair) {
  std::mt19937 random(TestSeed());
  MergeTable table;
  table.Reserve(1000);
  const Merges merges = AddMerges(1000, random, &table);
  EXPECT_EQ(table.end_rank(), 1000u);
  ExpectAll(table, merges);
}

// As where a file is made so that all pairs have one place.
TEST(MergeTableTest, HoldsMoreThanItsPlaces) {
  std::mt19937 random(TestSeed());
  MergeTable table;
  table.Reserve(2);
  ExpectAll(table, AddMerges(1500, random, &table));
}

TEST(MergeTableTest, HasNothingAtFirst) {
  MergeTable table;
  EXPECT_EQ(table.Find(0, 0).rank, MergeTable::kNoRank);
  EXPECT_EQ(table.Find(UINT32_MAX, UINT32_MAX).rank, MergeTable::kNoRank);
  ExpectAll(table, {});
}

}  // namespace
}  // namespace rivulet
