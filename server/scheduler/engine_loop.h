// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine thread: plan, run, commit, for ever; asleep on a condition variable when nothing can
// run. The one thread that touches the engine and every session.
#ifndef RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
#define RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_

#include <atomic>
#include <thread>

#include "server/engine/engine.h"
#include "server/scheduler/scheduler.h"

namespace rivulet {

class EngineLoop {
 public:
  // Starts the thread; both outlive this.
  EngineLoop(Engine& engine, Scheduler& scheduler);
  // Ends after the step in progress. Requests that still run are left as they are: abort them and
  // wait first (Scheduler::AbortAll, WaitUntilIdle).
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

 private:
  void Run();

  Engine& engine_;
  Scheduler& scheduler_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
