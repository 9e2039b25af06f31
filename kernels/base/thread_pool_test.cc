// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/parallel.h"

namespace rivulet {
namespace {

TEST(ThreadPoolTest, RunsEachTaskOnce) {
  for (size_t threads : {0, 1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads == 0 ? 1 : threads);
    for (size_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.ParallelFor(tasks, [&](size_t i) { runs[i].fetch_add(1); });
      for (const auto& run : runs) ASSERT_EQ(run.load(), 1);
    }
  }
}

// Plain writes of one loop are read by other threads in the next: ParallelFor must order them, and
// ThreadSanitizer sees it if it does not.
TEST(ThreadPoolTest, ALoopSeesWhatTheLastOneWrote) {
  ThreadPool pool(4);
  std::vector<int> values(64, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(values.size(), [&](size_t i) {
      if (values[(i + round) % values.size()] < 0) ADD_FAILURE();
    });
    pool.ParallelFor(values.size(), [&](size_t i) { ++values[i]; });
  }
  for (int value : values) ASSERT_EQ(value, 2000);
}

TEST(ThreadPoolTest, ReturnsOnlyWhenEveryTaskHas) {
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> done{0};
    pool.ParallelFor(6, [&](size_t i) {
      std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
      done.fetch_add(1);
    });
    ASSERT_EQ(done.load(), 6);
  }
}

TEST(ThreadPoolTest, ATaskWithoutMemoryFailsTheLoopAndNotTheNextOne) {
  ThreadPool pool(4);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> runs{0};
    const auto task = [&](size_t i) {
      ++runs;
      if (i % 7 == 3) throw std::bad_alloc();
    };
    EXPECT_THROW(pool.ParallelFor(100, task), std::bad_alloc);
    const int after = runs;
    pool.ParallelFor(100, [&](size_t) { ++runs; });
    EXPECT_EQ(runs, after + 100);
  }
}

TEST(ThreadPoolTest, ManyPoolsComeAndGo) {
  for (int i = 0; i < 200; ++i) {
    ThreadPool pool(3);
    std::atomic<int> sum{0};
    if (i % 2 == 0) pool.ParallelFor(5, [&](size_t k) { sum += static_cast<int>(k); });
    EXPECT_EQ(sum.load(), i % 2 == 0 ? 10 : 0);
  }
}

TEST(ParallelRowsTest, VisitsEachRowOnceWhateverTheSize) {
  for (size_t threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    for (size_t rows : {0, 1, 5, 100, 1001}) {
      for (size_t columns : {1, 1000, 100000}) {
        std::vector<std::atomic<int>> runs(rows);
        ParallelRows(pool, rows, columns, [&](size_t r) { runs[r].fetch_add(1); });
        for (const auto& run : runs) ASSERT_EQ(run.load(), 1);
      }
    }
  }
}

TEST(ParallelRowsTest, SmallWorkIsOneTask) {
  ThreadPool pool(2);
  EXPECT_EQ(UsefulTasks(pool, kFloatsWorthAThread, 100), 1u);
  EXPECT_EQ(UsefulTasks(pool, 1000 * kFloatsWorthAThread, 100), 8u);
  EXPECT_EQ(UsefulTasks(pool, 1000 * kFloatsWorthAThread, 3), 3u);
  ThreadPool alone(1);
  EXPECT_EQ(UsefulTasks(alone, 1000 * kFloatsWorthAThread, 100), 1u);
}

}  // namespace
}  // namespace rivulet
