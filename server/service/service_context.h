// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_SERVER_SERVICE_SERVICE_CONTEXT_H_
#define RIVULET_SERVER_SERVICE_SERVICE_CONTEXT_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"
#include "server/metrics/metrics.h"
#include "server/scheduler/scheduler.h"
#include "server/security/authenticator.h"
#include "server/security/caller.h"
#include "server/service/served_model.h"
#include "server/service/worker_pool.h"
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

// What every method needs; all of it outlives the doors (gRPC, HTTP). Threading: each part as its
// own header says.
struct ServiceContext {
  const ServedModel& model;
  Scheduler& scheduler;
  SessionTable& sessions;
  WorkerPool& pool;
  Metrics& metrics;
  CallCount& calls;
  const Authenticator& authenticator;
  uint32_t max_prompt = 0;  // --max-prompt, tokens
};

// The service, for one caller.
struct CallerContext {
  const ServiceContext& service;
  const Caller& caller;

  SessionKey Key(const std::string& session_id) const {
    return {caller.tenant->name(), session_id};
  }
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_SERVICE_CONTEXT_H_
