// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace rivulet {
namespace {

class Counter {
 public:
  void Add() {
    MutexLock lock(&mutex_);
    ++value_;
    changed_.NotifyAll();
  }

  void AwaitAtLeast(int value) {
    MutexLock lock(&mutex_);
    while (value_ < value) changed_.Wait(&mutex_);
  }

  // False when the deadline came first.
  bool AwaitUntil(int value, std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(&mutex_);
    while (value_ < value) {
      if (changed_.WaitUntil(&mutex_, deadline)) return value_ >= value;
    }
    return true;
  }

  int value() {
    MutexLock lock(&mutex_);
    return value_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int value_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, GuardsAgainstLostUpdates) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5000; ++j) counter.Add();
    });
  }
  counter.AwaitAtLeast(20000);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(counter.value(), 20000);
}

TEST(MutexTest, WaitUntilEndsAtTheDeadline) {
  Counter counter;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(counter.AwaitUntil(1, start + std::chrono::milliseconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  counter.Add();  // the mutex was given back
  EXPECT_TRUE(counter.AwaitUntil(1, start));
}

TEST(MutexTest, TryLockFailsWhileHeld) {
  Mutex mutex;
  mutex.Lock();
  bool locked = true;
  std::thread([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { locked = mutex.TryLock(); }).join();
  EXPECT_FALSE(locked);
  mutex.Unlock();
  if (mutex.TryLock()) {
    mutex.Unlock();
  } else {
    FAIL() << "the mutex was given back";
  }
}

}  // namespace
}  // namespace rivulet
