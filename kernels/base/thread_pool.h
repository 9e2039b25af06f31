// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A fixed set of threads that run the tasks of one parallel loop at a time. The assignment of tasks
// to threads is unspecified, so results must not depend on it: every kernel computes each output
// number within one task, in a fixed order, so the number of threads never changes a bit of a
// result.
//
// A waiting thread polls for its next loop for 20 to 50 µs, the gap between two loops of a step,
// and then sleeps, so that an idle pool costs nothing. Polling gains 40 % of decode with one stream
// (docs/performance.md), since a wake-up takes longer than many of the loops.
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
  // Uses `threads` threads, including the caller of ParallelFor; 0 means one.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const { return workers_.size() + 1; }

  // Calls task(i) once for every i in [0, tasks), and returns when all have returned. The caller
  // also works. Not reentrant; one caller at a time. If a task throws std::bad_alloc, other tasks
  // may be left out, and it is thrown to the caller when no task runs any more. A task must not
  // throw anything else.
  void ParallelFor(size_t tasks, absl::FunctionRef<void(size_t)> task);

 private:
  // Workers can join the running loop until its caller closes it. The caller waits for workers that
  // have joined and not for those that are still asleep, so a worker without a core only costs its
  // help.
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
  std::atomic<bool> out_of_memory_{false};  // a task of this loop threw std::bad_alloc
  std::atomic<uint32_t> gate_{kClosed};     // the number of workers inside, and kClosed
  std::atomic<uint32_t> generation_{0};     // changes to wake workers up
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_THREAD_POOL_H_
