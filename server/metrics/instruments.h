// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Counter, gauge and histogram made of relaxed atomics. prometheus-cpp's histogram takes a lock for
// each observation, and the engine thread makes one per token. prometheus-cpp only writes the text
// (metrics.cc).
//
// Threading: any thread, no locks. A reader may see one of two changes that were made together.
#ifndef RIVULET_SERVER_METRICS_INSTRUMENTS_H_
#define RIVULET_SERVER_METRICS_INSTRUMENTS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace rivulet {

class Counter {
 public:
  void Add(uint64_t amount = 1) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void Set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void Add(int64_t amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

class Histogram {
 public:
  // `upper_bounds` ascend and outlive the histogram; the bucket up to infinity is added.
  explicit Histogram(std::span<const double> upper_bounds)
      : upper_bounds_(upper_bounds),
        counts_(std::make_unique<std::atomic<uint64_t>[]>(upper_bounds.size() + 1)) {}

  // Prometheus counts a value that equals a bucket's bound inside that bucket.
  void Observe(double value) {
    const auto bound = std::lower_bound(upper_bounds_.begin(), upper_bounds_.end(), value);
    const size_t bucket = static_cast<size_t>(bound - upper_bounds_.begin());
    counts_[bucket].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }

  std::span<const double> upper_bounds() const { return upper_bounds_; }
  // Of one bucket alone, not cumulative; `bucket` up to upper_bounds().size().
  uint64_t count(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::span<const double> upper_bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_METRICS_INSTRUMENTS_H_
