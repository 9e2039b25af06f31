// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Threads for what a gRPC callback may not do because it takes long: parsing and tokenizing. Tasks
// start in the order in which they came.
//
// Threading: Run from any thread.
#ifndef RIVULET_SERVER_RPC_WORKER_POOL_H_
#define RIVULET_SERVER_RPC_WORKER_POOL_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"

namespace rivulet {

class WorkerPool {
 public:
  // At most `max_waiting` tasks wait for a thread.
  WorkerPool(size_t threads, size_t max_waiting);
  // Runs what waits, then ends.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and the task is dropped, when too many wait.
  [[nodiscard]] bool Run(std::function<void()> task);

 private:
  void Work();
  std::function<void()> Next();

  const size_t max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_WORKER_POOL_H_
