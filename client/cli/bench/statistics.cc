// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/bench/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rivulet::cli::bench {
namespace {

constexpr int kBits = 8;
constexpr uint64_t kPerPower = 1 << kBits;

// Values below 2^9 have their own bucket; larger ones are placed by their top nine bits and power.
size_t BucketOf(uint64_t value) {
  if (value < 2 * kPerPower) return value;
  const int shift = std::bit_width(value) - kBits - 1;
  return static_cast<size_t>(shift) * kPerPower + (value >> shift);
}

// The middle of a bucket.
int64_t ValueOf(size_t bucket) {
  if (bucket < 2 * kPerPower) return static_cast<int64_t>(bucket);
  const uint64_t shift = bucket / kPerPower - 1;
  const uint64_t lowest = (bucket - shift * kPerPower) << shift;
  return static_cast<int64_t>(lowest + ((uint64_t{1} << shift) >> 1));
}

}  // namespace

void LatencyHistogram::Add(std::chrono::nanoseconds value, uint64_t times) {
  if (times == 0) return;
  const int64_t clamped = std::clamp<int64_t>(value.count(), 0, kMax.count());
  const size_t bucket = BucketOf(static_cast<uint64_t>(clamped));
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  counts_[bucket] += times;
  count_ += times;
  min_ = std::min(min_, clamped);
  max_ = std::max(max_, clamped);
  sum_ += static_cast<double>(clamped) * static_cast<double>(times);
}

double LatencyHistogram::mean_nanoseconds() const {
  return count_ > 0 ? sum_ / static_cast<double>(count_) : 0;
}

std::chrono::nanoseconds LatencyHistogram::Percentile(double share) const {
  if (count_ == 0) return std::chrono::nanoseconds(0);
  const double wanted =
      std::clamp(std::ceil(share * static_cast<double>(count_)), 1.0, static_cast<double>(count_));
  uint64_t seen = 0;
  size_t bucket = 0;
  for (; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (static_cast<double>(seen) >= wanted) break;
  }
  return std::chrono::nanoseconds(std::clamp(ValueOf(bucket), min_, max_));
}

}  // namespace rivulet::cli::bench
