// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/worker_pool.h"

#include <malloc.h>

#include <new>
#include <utility>

#include "kernels/base/thread_name.h"

namespace rivulet {

WorkerPool::WorkerPool(size_t threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Work(i == 0); });
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Run(std::function<void()> task, size_t bytes) {
  try {
    MutexLock lock(&mutex_);
    if (short_.size() + long_.size() >= max_waiting_) return false;
    if (waiting_bytes_ + bytes > kMaxWaitingBytes) return false;
    (bytes > kShortBytes ? long_ : short_).push_back({std::move(task), bytes});
    waiting_bytes_ += bytes;
  } catch (const std::bad_alloc&) {
    return false;
  }
  changed_.NotifyAll();  // one alone might wake a thread that does not take this kind
  return true;
}

WorkerPool::Task WorkerPool::Next(bool takes_long) {
  MutexLock lock(&mutex_);
  for (;;) {
    std::deque<Task>& tasks = takes_long && !long_.empty() ? long_ : short_;
    if (!tasks.empty()) {
      Task task = std::move(tasks.front());
      tasks.pop_front();
      waiting_bytes_ -= task.bytes;
      return task;
    }
    if (stopping_) return {};
    changed_.Wait(&mutex_);
  }
}

void WorkerPool::Work(bool takes_long) {
  NameThisThread("rivulet-worker");
  for (Task task = Next(takes_long); task.run; task = Next(takes_long)) {
    task.run();
    task.run = nullptr;  // with what it holds
    // Tokenizing megabytes takes gigabytes, which the allocator would keep.
    if (task.bytes > kShortBytes) malloc_trim(0);
  }
}

}  // namespace rivulet
