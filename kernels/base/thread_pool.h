// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A fixed set of threads that run the tasks of one parallel loop at a time. Which thread runs which
// task is left open, so a task's result must not depend on it: every kernel computes each output
// number wholly inside one task, in a fixed order, and that is why the number of threads never
// changes a bit of a result.
//
// Waiting: a thread looks for its next loop for 20 to 50 µs, the gap between two loops of a step,
// and then sleeps. That bound is the whole of it: an idle pool costs nothing. It is worth 40 % of
// decode at one stream (docs/performance.md), since a wake-up costs more than many of the loops.
//
// It deliberately has no queue, futures or nesting.
#ifndef RIVULET_KERNELS_BASE_THREAD_POOL_H_
#define RIVULET_KERNELS_BASE_THREAD_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace rivulet {

class ThreadPool {
 public:
  // Uses `threads` threads in all, the caller of ParallelFor included; 0 means one.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls task(i) once for every i in [0, tasks), and returns when all have returned. The caller
  // works too. Not reentrant; one caller at a time. A task must not throw.
  void ParallelFor(size_t tasks, absl::FunctionRef<void(size_t)> task);

 private:
  // The loop that is running can be joined until its caller closes it. The caller waits for the
  // workers inside, not for those that have yet to wake up: a worker that the system keeps from its
  // core costs nothing but its help.
  static constexpr uint32_t kClosed = uint32_t{1} << 31;

  void Work();
  bool Join();
  void Leave();
  void RunTasks();

  // Written by ParallelFor while no worker is inside, before it opens the gate; read by workers
  // after they have joined.
  const absl::FunctionRef<void(size_t)>* task_ = nullptr;
  size_t tasks_ = 0;
  std::atomic<size_t> next_{0};
  std::atomic<uint32_t> gate_{kClosed};  // the number of workers inside, and kClosed
  std::atomic<uint32_t> generation_{0};  // moves when there is something to wake up for
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_THREAD_POOL_H_
