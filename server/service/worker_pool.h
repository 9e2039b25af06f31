// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Threads for work that is too slow for a gRPC callback: parsing and tokenizing. A long request
// (tokenizing 60 MiB takes a minute) must not delay short ones: the first thread prefers long
// tasks, the others take only short ones. Tasks of one kind start in order of arrival.
//
// Threading: Run from any thread.
#ifndef RIVULET_SERVER_SERVICE_WORKER_POOL_H_
#define RIVULET_SERVER_SERVICE_WORKER_POOL_H_

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
  // A task with more bytes is long.
  static constexpr size_t kShortBytes = 256 << 10;
  // Limit on the bytes of all waiting requests: a limit on their number alone let 64 GiB wait.
  static constexpr size_t kMaxWaitingBytes = size_t{256} << 20;

  // At most `max_waiting` tasks wait for a thread. REQUIRES: threads >= 2.
  WorkerPool(size_t threads, size_t max_waiting);
  // Runs what waits, then ends.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // `bytes`: the size of the request behind the task. False, and the task is dropped, when too many
  // tasks or too many bytes wait or memory is short. The task does not throw.
  [[nodiscard]] bool Run(std::function<void()> task, size_t bytes = 0);

 private:
  struct Task {
    std::function<void()> run;
    size_t bytes = 0;
  };

  void Work(bool takes_long);
  Task Next(bool takes_long);  // without `run`: the end

  const size_t max_waiting_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> short_ ABSL_GUARDED_BY(mutex_);
  std::deque<Task> long_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_WORKER_POOL_H_
