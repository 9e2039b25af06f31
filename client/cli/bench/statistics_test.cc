// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/base/test_seed.h"

namespace rivulet::cli::bench {
namespace {

using std::chrono::nanoseconds;

// Nearest rank, by sorting.
int64_t BruteForce(std::vector<int64_t> values, double share) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  return values[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

void ExpectPercentilesMatch(const std::vector<int64_t>& values) {
  LatencyHistogram histogram;
  for (int64_t value : values) histogram.Add(nanoseconds(value));
  for (double share : {0.0, 0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0}) {
    const int64_t exact = BruteForce(values, share);
    EXPECT_NEAR(static_cast<double>(histogram.Percentile(share).count()),
                static_cast<double>(exact), static_cast<double>(exact) / 512.0)
        << "share " << share << " of " << values.size() << " values";
  }
}

TEST(BenchStatisticsTest, EmptyIsZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Percentile(0.99).count(), 0);
  EXPECT_EQ(histogram.min().count(), 0);
  EXPECT_EQ(histogram.max().count(), 0);
  EXPECT_EQ(histogram.mean_nanoseconds(), 0);
}

TEST(BenchStatisticsTest, PercentilesMatchSorting) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> values(1 + random() % 3000);
    // Over all magnitudes from 1 ns to an hour.
    for (int64_t& value : values) value = static_cast<int64_t>(random() >> (22 + random() % 42));
    ExpectPercentilesMatch(values);
  }
}

TEST(BenchStatisticsTest, EveryPowerOfTwoAndItsNeighbours) {
  for (int power = 0; power < 42; ++power) {
    for (int64_t offset : {-1, 0, 1}) ExpectPercentilesMatch({(int64_t{1} << power) + offset});
  }
}

TEST(BenchStatisticsTest, SmallValuesAreExact) {
  for (int64_t value = 0; value < 512; ++value) {
    LatencyHistogram histogram;
    histogram.Add(nanoseconds(0));
    histogram.Add(nanoseconds(value));
    histogram.Add(nanoseconds(1'000'000));
    EXPECT_EQ(histogram.Percentile(0.5).count(), value);
  }
}

TEST(BenchStatisticsTest, CountsAValueManyTimes) {
  LatencyHistogram histogram;
  histogram.Add(nanoseconds(100), 98);
  histogram.Add(nanoseconds(300), 2);
  histogram.Add(nanoseconds(900), 0);
  EXPECT_EQ(histogram.count(), 100u);
  EXPECT_EQ(histogram.Percentile(0.98).count(), 100);
  EXPECT_EQ(histogram.Percentile(0.99).count(), 300);
  EXPECT_EQ(histogram.mean_nanoseconds(), 104);
  EXPECT_EQ(histogram.max().count(), 300);
}

TEST(BenchStatisticsTest, ValuesOutOfRangeAreClamped) {
  LatencyHistogram histogram;
  histogram.Add(nanoseconds(-5));
  histogram.Add(nanoseconds(int64_t{1} << 60));
  EXPECT_EQ(histogram.min().count(), 0);
  EXPECT_EQ(histogram.max(), LatencyHistogram::kMax);
  EXPECT_EQ(histogram.Percentile(1), LatencyHistogram::kMax);
}

}  // namespace
}  // namespace rivulet::cli::bench
