// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/long_runs.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace rivulet {
namespace {

constexpr uint32_t kBlocks = 264;  // two on each of 132 processors

TEST(LongRunsTest, NoBlockGetsMuchMoreThanItsShare) {
  for (uint32_t run = 1; run <= 16; run *= 2) {
    for (uint32_t pieces = run; pieces < 100 * kBlocks; pieces += 37) {
      const uint32_t runs = MostLongRuns(pieces, run, kBlocks);
      const uint32_t most = (runs + kBlocks - 1) / kBlocks * run;  // pieces of a block
      ASSERT_LE(25 * most * kBlocks, 26 * pieces) << pieces << " pieces in runs of " << run;
      ASSERT_LE(runs, pieces / run / 16 * 15);
    }
  }
}

// GLA with 4 heads of 256 x 512 and fp32 states: 64 pieces a row.
TEST(LongRunsTest, FewRunsAreShortWhereTheBlocksGetEquallyMany) {
  EXPECT_EQ(MostLongRuns(64 * 128, 8, kBlocks), 960u);   // of 1024
  EXPECT_EQ(MostLongRuns(64 * 256, 8, kBlocks), 1920u);  // of 2048
}

// With 540, twelve blocks would have 24 pieces, where the share is 17.5.
TEST(LongRunsTest, MoreAreShortWhereAFewBlocksWouldGetOneMore) {
  EXPECT_EQ(MostLongRuns(64 * 72, 8, kBlocks), 528u);  // of 576
}

TEST(LongRunsTest, NoneIsLongWhereABlockHasLessThanOne) {
  EXPECT_EQ(MostLongRuns(3 * kBlocks, 4, kBlocks), 0u);
}

}  // namespace
}  // namespace rivulet
