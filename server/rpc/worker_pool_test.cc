// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/rpc/worker_pool.h"

#include <atomic>
#include <chrono>
#include <future>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

constexpr size_t kLong = WorkerPool::kShortBytes + 1;

// Two clients that sent 60 MiB to Tokenize held up everybody else's requests for minutes.
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

}  // namespace
}  // namespace rivulet
