// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_RPC_SERVICE_CONTEXT_H_
#define RIVULET_SERVER_RPC_SERVICE_CONTEXT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"
#include "server/metrics/metrics.h"
#include "server/rpc/served_model.h"
#include "server/rpc/worker_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/session/session_table.h"

namespace rivulet {

// How many calls have not ended, so that a shutdown can wait for them. gRPC's own wait also waits
// for connections without a call, which their clients may keep open as long as they like.
// Threading: any thread. It outlives its calls.
class CallCount {
 public:
  void Add(int calls) {
    MutexLock lock(&mutex_);
    calls_ += calls;
    if (calls_ == 0) none_.NotifyAll();
  }
  // Returns once there is none, or at the deadline: how many there are then.
  int WaitForNone(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(&mutex_);
    while (calls_ > 0 && !none_.WaitUntil(&mutex_, deadline)) continue;
    return calls_;
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A gRPC reactor that is counted while it exists. Once it was told to Own itself, it lives until
// gRPC has sent the status (OnDone), or as long as a turn or the dispatcher still refers to it.
template <typename Reactor>
class CountedReactor : public Reactor {
 public:
  explicit CountedReactor(CallCount& calls) : calls_(calls) { calls_.Add(1); }
  ~CountedReactor() override { calls_.Add(-1); }

  void Own(std::shared_ptr<void> self) { self_ = std::move(self); }
  void OnDone() override { const std::shared_ptr<void> self = std::move(self_); }

 private:
  CallCount& calls_;
  std::shared_ptr<void> self_;
};

// What every method needs; all of it outlives the gRPC server. Threading: each part as its own
// header says.
struct ServiceContext {
  const ServedModel& model;
  Scheduler& scheduler;
  SessionTable& sessions;
  WorkerPool& pool;
  Metrics& metrics;
  CallCount& calls;
  uint32_t max_prompt = 0;  // --max-prompt, tokens
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SERVICE_CONTEXT_H_
