// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A histogram of durations with percentiles accurate to one part in 512, in bounded memory: the
// layout of HdrHistogram. Values below 512 ns have their own bucket; above, each power of two is
// divided into 256. Not thread-safe.
#ifndef RIVULET_CLIENT_CLI_BENCH_STATISTICS_H_
#define RIVULET_CLIENT_CLI_BENCH_STATISTICS_H_

#include <chrono>
#include <cstdint>
#include <vector>

namespace rivulet::cli::bench {

inline double Milliseconds(std::chrono::nanoseconds value) {
  return static_cast<double>(value.count()) * 1e-6;
}

class LatencyHistogram {
 public:
  // A negative value counts as 0, one over kMax (over an hour) as kMax.
  static constexpr std::chrono::nanoseconds kMax{int64_t{1} << 42};

  void Add(std::chrono::nanoseconds value, uint64_t times = 1);

  uint64_t count() const { return count_; }
  // These three are exact; 0 if nothing was added.
  std::chrono::nanoseconds min() const { return std::chrono::nanoseconds(count_ > 0 ? min_ : 0); }
  std::chrono::nanoseconds max() const { return std::chrono::nanoseconds(max_); }
  double mean_nanoseconds() const;

  // The smallest value that at least `share` (0 to 1) of all values do not exceed, accurate to
  // 1/512; 0 if nothing was added.
  std::chrono::nanoseconds Percentile(double share) const;

 private:
  std::vector<uint64_t> counts_;  // up to the largest value so far, at most 72 KB
  uint64_t count_ = 0;
  int64_t min_ = kMax.count();
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace rivulet::cli::bench

#endif  // RIVULET_CLIENT_CLI_BENCH_STATISTICS_H_
