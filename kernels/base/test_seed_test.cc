// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/test_seed.h"

#include <set>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

TEST(TestSeedTest, IsFixedUnlessTheEnvironmentSaysOtherwise) {
  EXPECT_EQ(ParseTestSeed(nullptr), ParseTestSeed(nullptr));
  EXPECT_EQ(ParseTestSeed("0"), 0u);
  EXPECT_EQ(ParseTestSeed("18446744073709551615"), ~uint64_t{0});
}

TEST(TestSeedTest, RandomDrawsNewSeeds) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 8; ++i) seeds.insert(ParseTestSeed("random"));
  EXPECT_GT(seeds.size(), 1u);
}

TEST(TestSeedTest, IsTheSameThroughoutAProcess) { EXPECT_EQ(TestSeed(), TestSeed()); }

TEST(TestSeedDeathTest, RefusesAnythingElse) {
  for (const char* value : {"", "seven", "7x", "-1", "18446744073709551616"}) {
    EXPECT_DEATH(ParseTestSeed(value), "neither a number nor");
  }
}

}  // namespace
}  // namespace rivulet
