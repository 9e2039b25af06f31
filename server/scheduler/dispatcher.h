// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One thread that notifies streams of messages in their outboxes. A gRPC write costs the thread
// that starts it about 7 µs, so the engine thread leaves that to this one: 64 streams a step would
// hold it up by half a millisecond.
#ifndef RIVULET_SERVER_SCHEDULER_DISPATCHER_H_
#define RIVULET_SERVER_SCHEDULER_DISPATCHER_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/base/mutex.h"
#include "server/scheduler/outbox.h"

namespace rivulet {

class Dispatcher {
 public:
  Dispatcher();
  // Delivers what was announced, then ends.
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Delivers each outbox soon, in order. `outboxes` comes back empty. Any thread; never waits for a
  // stream.
  void Announce(std::vector<std::shared_ptr<Outbox>>& outboxes);

 private:
  void Run();
  bool WaitForWork(std::vector<std::shared_ptr<Outbox>>& work);

  Mutex mutex_;
  CondVar announced_;
  std::vector<std::shared_ptr<Outbox>> ready_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_DISPATCHER_H_
