// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The hashes, with numbers that transformers 5.23 computes. That the whole computes what it does:
// tests/parity; that any cut of a session gives the same bits: server/scheduler.
#include <array>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/ops/ngram_embedding/ngram_hash.h"

namespace rivulet {
namespace {

using testing::ElementsAre;

// Two heads an order up to trigrams.
NgramHash Hash(size_t layer) {
  return NgramHash({.vocab = 60,
                    .ngram = 3,
                    .heads = 2,
                    .layer = layer,
                    .seed = 1234,
                    .base = 30,
                    .multiple = 8});
}

std::vector<uint32_t> RowsOf(const NgramHash& hash, std::array<uint32_t, 3> tokens) {
  std::vector<uint32_t> rows(hash.heads());
  hash.RowsOf(tokens, rows.data());
  return rows;
}

TEST(NgramHashTest, TablesHoldThePrimesFromTheBaseOn) {
  EXPECT_EQ(Hash(0).heads(), 4u);
  EXPECT_EQ(Hash(0).rows(), 152u);  // 31 + 37 + 41 + 43
  EXPECT_EQ(Hash(1).rows(), 224u);  // 47 + 53 + 59 + 61, padded
}

TEST(NgramHashTest, RowsDependOnTheTokensAndTheLayer) {
  EXPECT_THAT(RowsOf(Hash(0), {5, 2, 2}), ElementsAre(0, 66, 88, 121));
  EXPECT_THAT(RowsOf(Hash(0), {17, 5, 2}), ElementsAre(13, 60, 86, 142));
  EXPECT_THAT(RowsOf(Hash(0), {59, 33, 9}), ElementsAre(24, 60, 101, 122));
  EXPECT_THAT(RowsOf(Hash(1), {2, 17, 5}), ElementsAre(1, 94, 152, 159));
  EXPECT_THAT(RowsOf(Hash(1), {33, 9, 2}), ElementsAre(32, 93, 156, 214));
}

}  // namespace
}  // namespace rivulet
