// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/thread_pool.h"

#include <new>

#include "hwy/cache_control.h"
#include "kernels/base/thread_name.h"

namespace rivulet {
namespace {

// A step is dozens of loops of a few microseconds each, and putting a thread to sleep and waking it
// takes longer than many of them. Waiting threads therefore poll for 20 to 50 µs first (a pause
// takes 20 to 50 ns), which spans the gap between two loops of a step.
constexpr int kPauses = 1000;

template <typename Condition>
void LookFor(Condition&& condition) {
  for (int i = 0; i < kPauses && !condition(); ++i) hwy::Pause();
}

}  // namespace

ThreadPool::ThreadPool(size_t threads) {
  for (size_t i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(size_t tasks, absl::FunctionRef<void(size_t)> task) {
  if (workers_.empty() || tasks <= 1) {
    for (size_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  task_ = &task;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  gate_.store(0, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunTasks();
  gate_.fetch_or(kClosed, std::memory_order_relaxed);
  LookFor([&] { return gate_.load(std::memory_order_relaxed) == kClosed; });
  // Acquire: the caller sees what the workers wrote in their tasks.
  for (uint32_t gate; (gate = gate_.load(std::memory_order_acquire)) != kClosed;) gate_.wait(gate);
  if (out_of_memory_.exchange(false, std::memory_order_relaxed)) throw std::bad_alloc();
}

// An exception must leave neither a worker nor, while workers run the loop's tasks, the caller.
void ThreadPool::RunTasks() {
  try {
    for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) (*task_)(i);
  } catch (const std::bad_alloc&) {
    out_of_memory_.store(true, std::memory_order_relaxed);
  }
}

// Acquire: pairs with the store that opened the gate, so that task_ and tasks_ can be read.
bool ThreadPool::Join() {
  uint32_t gate = gate_.load(std::memory_order_relaxed);
  while ((gate & kClosed) == 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::Leave() {
  if (gate_.fetch_sub(1, std::memory_order_release) == kClosed + 1) gate_.notify_one();
}

void ThreadPool::Work() {
  NameThisThread("rivulet-compute");
  uint32_t seen = 0;
  while (true) {
    LookFor([&] { return generation_.load(std::memory_order_relaxed) != seen; });
    generation_.wait(seen, std::memory_order_acquire);
    // A worker that wakes up late finds the gate closed, or helps with a later loop.
    seen = generation_.load(std::memory_order_acquire);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!Join()) continue;
    RunTasks();
    Leave();
  }
}

}  // namespace rivulet
