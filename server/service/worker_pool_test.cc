// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/worker_pool.h"

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

constexpr size_t kLong = WorkerPool::kShortBytes + 1;

// Two clients that sent 60 MiB to Tokenize once delayed all other requests for minutes.
TEST(WorkerPoolTest, LongTasksDoNotHoldUpShortOnes) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::promise<void> short_done;
  WorkerPool pool(2, 100);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.Run([released] { released.wait(); }, kLong));
  ASSERT_TRUE(pool.Run([&short_done] { short_done.set_value(); }));
  EXPECT_EQ(short_done.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  release.set_value();
}

TEST(WorkerPoolTest, RunsEveryTaskBeforeItEnds) {
  std::atomic<int> ran{0};
  {
    WorkerPool pool(3, 1000);
    for (int i = 0; i < 900; ++i) ASSERT_TRUE(pool.Run([&ran] { ++ran; }, i % 2 == 0 ? kLong : 1));
  }
  EXPECT_EQ(ran, 900);
}

TEST(WorkerPoolTest, RefusesWhenTooManyWait) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  WorkerPool pool(2, 1);
  int taken = 0;
  for (int i = 0; i < 10; ++i) taken += pool.Run([released] { released.wait(); }, kLong) ? 1 : 0;
  EXPECT_GE(taken, 1);
  EXPECT_LE(taken, 2);  // one runs, one waits
  release.set_value();
}

// 100 requests of 30 MB each took 3 GB while they waited, and 1024 might have.
TEST(WorkerPoolTest, RefusesWhenTooManyBytesWait) {
  constexpr size_t kHalf = WorkerPool::kMaxWaitingBytes / 2;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> ran{0};
  const auto wait = [released, &ran] {
    released.wait();
    ++ran;
  };
  WorkerPool pool(2, 100);
  int taken = 0;
  for (int i = 0; i < 10; ++i) taken += pool.Run(wait, kHalf) ? 1 : 0;
  EXPECT_GE(taken, 2);
  EXPECT_LE(taken, 3);  // one runs, two wait
  EXPECT_TRUE(pool.Run(wait)) << "small ones still have room";
  release.set_value();
  while (ran < taken + 1) std::this_thread::yield();
  EXPECT_TRUE(pool.Run([] {}, 2 * kHalf)) << "what ran counts no more";
}

}  // namespace
}  // namespace rivulet
