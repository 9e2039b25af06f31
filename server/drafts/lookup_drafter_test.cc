// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/drafts/lookup_drafter.h"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

using Tokens = std::vector<uint32_t>;

class LookupDrafterTest : public testing::Test {
 protected:
  // What it would draft after the tokens so far.
  Tokens Drafts(Drafter& drafter, size_t most = 6) {
    std::array<float, kMostDrafts> chances;
    const size_t count = drafter.Outlook(tokens_, std::span(chances).first(most));
    Tokens drafts;
    drafter.Draft(tokens_, count, drafts);
    for (size_t i = 0; i < count; ++i) EXPECT_TRUE(chances[i] > 0 && chances[i] <= 1);
    return drafts;
  }
  std::unique_ptr<Drafter> Make(LookupSource& source) { return source.MakeDrafter({}); }

  Metrics metrics_;
  TokenSequence tokens_{std::make_shared<TokenLedger>()};
};

TEST_F(LookupDrafterTest, WhatFollowedTheSameTokensIsGuessed) {
  LookupSource source({}, metrics_);
  const auto drafter = Make(source);
  tokens_.Append(Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 3});
  EXPECT_EQ(Drafts(*drafter), (Tokens{4, 5, 6, 7, 8, 9}));
  tokens_.Append(4);
  EXPECT_EQ(Drafts(*drafter, 2), (Tokens{5, 6}));
  tokens_.Append(70);
  EXPECT_EQ(Drafts(*drafter), Tokens());
}

// Whether it follows early or only when it is asked.
TEST_F(LookupDrafterTest, WhatWasFollowedEarlyIsGuessedAsOtherwise) {
  std::mt19937 random(static_cast<uint32_t>(TestSeed()));
  LookupSource source({1, 2, 3, 4, 5, 6, 7, 8}, metrics_),
      other({1, 2, 3, 4, 5, 6, 7, 8}, metrics_);
  const auto early = Make(source), late = Make(other);
  size_t drafted = 0;
  for (int i = 0; i < 2000; ++i) {
    tokens_.Append(Tokens{static_cast<uint32_t>(i % 40 < 30 ? i % 10 : random() % 10)});
    if (random() % 2 == 0) early->Follow(tokens_);
    const Tokens drafts = Drafts(*early);
    ASSERT_EQ(drafts, Drafts(*late));
    ASSERT_EQ(early->hit_rate(), late->hit_rate());
    drafted += drafts.size();
  }
  EXPECT_GT(drafted, 2000u);
}

// It learns how often its guesses would be right also where nothing asks for them.
TEST_F(LookupDrafterTest, FollowingAloneTellsHowOftenItIsRight) {
  LookupSource source({}, metrics_);
  const auto drafter = Make(source);
  for (uint32_t i = 0; i < 300; ++i) {
    tokens_.Append(Tokens{i % 7});
    drafter->Follow(tokens_);
  }
  EXPECT_GT(drafter->hit_rate(), 0.9);
}

// A match at the end of the session continues with its own guesses.
TEST_F(LookupDrafterTest, WhatRepeatsGoesOnRepeating) {
  LookupSource source({}, metrics_);
  const auto drafter = Make(source);
  tokens_.Append(Tokens{7, 8, 9, 7, 8});
  EXPECT_EQ(Drafts(*drafter, 7), (Tokens{9, 7, 8, 9, 7, 8, 9}));
}

TEST_F(LookupDrafterTest, ALongerRunWinsOverALaterOne) {
  LookupSource source({}, metrics_);
  const auto drafter = Make(source);
  tokens_.Append(Tokens{1, 2, 3, 4, 50, 3, 4, 60, 1, 2, 3, 4});
  EXPECT_EQ(Drafts(*drafter, 1), (Tokens{50}));
}

TEST_F(LookupDrafterTest, ASharedTextIsLookedUpToItsEnd) {
  LookupSource source({20, 21, 22, 23, 24}, metrics_);
  const auto drafter = Make(source);
  tokens_.Append(Tokens{1, 20, 21});
  EXPECT_EQ(Drafts(*drafter), (Tokens{22, 23, 24}));
  tokens_.Append(Tokens{22, 23, 24});
  EXPECT_EQ(Drafts(*drafter), Tokens());
}

TEST_F(LookupDrafterTest, ChancesFollowWhatWasRight) {
  LookupSource source({}, metrics_);
  const auto drafter = Make(source);
  std::array<float, 1> before, after;
  tokens_.Append(Tokens{1, 2, 3, 4, 1, 2});
  ASSERT_EQ(drafter->Outlook(tokens_, before), 1u);
  size_t guesses = 0;  // always wrong; other tokens may take the run's place in the table
  for (int i = 0; i < 60; ++i) {
    tokens_.Append(Tokens{static_cast<uint32_t>(100 + i)});
    ASSERT_EQ(drafter->Outlook(tokens_, after), 0u);
    tokens_.Append(Tokens{1, 2});
    guesses += drafter->Outlook(tokens_, after);
  }
  EXPECT_GT(guesses, 30u);
  EXPECT_LT(after[0], before[0] / 2);
  EXPECT_LT(drafter->hit_rate(), 0.1);
}

// A context that was there at the first call is entered piece by piece, and found in the end.
// Growth of the tables forgets nothing for good. Memory is counted and given back.
TEST_F(LookupDrafterTest, LongContextsAreFoundAndMemoryIsBounded) {
  std::mt19937 random(static_cast<uint32_t>(TestSeed()));
  LookupSource source({}, metrics_);
  auto drafter = Make(source);
  constexpr uint32_t kContext = 100'000;
  for (uint32_t i = 0; i < kContext; ++i) tokens_.Append(i);
  std::array<float, kMostDrafts> chances;
  for (size_t calls = 0; calls <= kContext / LookupIndex::kPiece; ++calls) {
    drafter->Outlook(tokens_, chances);
  }
  size_t found = 0;
  for (int i = 0; i < 200; ++i) {
    const uint32_t at = random() % (kContext - 100);
    tokens_.Append(Tokens{at, at + 1, at + 2, at + 3});
    found += Drafts(*drafter, 2) == Tokens{at + 4, at + 5} ? 1 : 0;
  }
  EXPECT_GT(found, 150u) << "some places were replaced by later ones";
  EXPECT_GT(metrics_.draft_memory_bytes.value(), 0);
  EXPECT_LE(metrics_.draft_memory_bytes.value(), 4 << 20);
  drafter = nullptr;
  EXPECT_EQ(metrics_.draft_memory_bytes.value(), 0);
}

TEST_F(LookupDrafterTest, GrowthFromNothingForgetsLittle) {
  LookupSource source({}, metrics_);
  const auto drafter = Make(source);
  std::array<float, kMostDrafts> chances;
  for (uint32_t i = 0; i < 20'000; ++i) {
    tokens_.Append(i);
    drafter->Outlook(tokens_, chances);
  }
  tokens_.Append(Tokens{19'000, 19'001, 19'002, 19'003});
  EXPECT_EQ(Drafts(*drafter, 2), (Tokens{19'004, 19'005}));
}

}  // namespace
}  // namespace rivulet
