// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/token_sequence.h"

#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"

namespace rivulet {
namespace {

TEST(TokenSequenceTest, CopiesAreIndependentAndCountSharedIdsOnce) {
  std::mt19937_64 random(TestSeed());
  const auto ledger = std::make_shared<TokenLedger>();
  struct Both {
    TokenSequence sequence;
    std::vector<uint32_t> expected;
  };
  std::vector<std::unique_ptr<Both>> all;
  all.push_back(std::make_unique<Both>(Both{TokenSequence(ledger), {}}));
  for (int round = 0; round < 400; ++round) {
    Both& one = *all[random() % all.size()];
    const uint64_t what = random() % 4;
    if (what < 2) {
      std::vector<uint32_t> more(random() % (2 * TokenSequence::kBlock));
      for (uint32_t& id : more) id = static_cast<uint32_t>(random());
      one.sequence.Append(more);
      one.expected.insert(one.expected.end(), more.begin(), more.end());
    } else if (what == 2) {
      const size_t size = random() % (one.expected.size() + 1);
      one.sequence.Truncate(size);
      one.expected.resize(size);
    } else if (all.size() < 8) {
      all.push_back(std::make_unique<Both>(one));
    } else {
      all.erase(all.begin() + static_cast<ptrdiff_t>(random() % all.size()));
    }
    size_t sum = 0;
    for (const auto& each : all) {
      ASSERT_EQ(each->sequence.Copy(), each->expected);
      sum += each->expected.size();
    }
    ASSERT_LE(ledger->held(), sum);
    const Both& some = *all[random() % all.size()];
    if (!some.expected.empty()) {
      const size_t i = random() % some.expected.size();
      ASSERT_EQ(some.sequence[i], some.expected[i]);
    }
  }
  all.clear();
  EXPECT_EQ(ledger->held(), 0u);
}

TEST(TokenSequenceTest, ACopyOfAMillionIdsIsSmall) {
  const auto ledger = std::make_shared<TokenLedger>();
  TokenSequence sequence(ledger);
  sequence.Append(std::vector<uint32_t>(1'000'000, 7));
  const TokenSequence copy(sequence);
  EXPECT_LT(copy.copy_bytes(), 32u << 10);
  EXPECT_LT(ledger->held(), 1'000'000 + TokenSequence::kBlock);
}

}  // namespace
}  // namespace rivulet
