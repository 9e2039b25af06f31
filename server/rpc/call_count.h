// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How many calls have not ended, so that a shutdown can wait for them. gRPC's own wait also waits
// for connections without a call, which their clients may keep open as long as they like.
// Threading: any thread. It outlives its calls.
#ifndef RIVULET_SERVER_RPC_CALL_COUNT_H_
#define RIVULET_SERVER_RPC_CALL_COUNT_H_

#include <chrono>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"

namespace rivulet {

class CallCount {
 public:
  void Add(int calls) {
    MutexLock lock(&mutex_);
    calls_ += calls;
    if (calls_ == 0) none_.NotifyAll();
  }
  // Returns once there is none, or at the deadline.
  void WaitForNone(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(&mutex_);
    while (calls_ > 0 && !none_.WaitUntil(&mutex_, deadline)) continue;
  }

 private:
  Mutex mutex_;
  CondVar none_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A member of each reactor: gRPC deletes or releases it once the client has the status.
class CountedCall {
 public:
  explicit CountedCall(CallCount& count) : count_(count) { count_.Add(1); }
  ~CountedCall() { count_.Add(-1); }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;

 private:
  CallCount& count_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_CALL_COUNT_H_
