// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine thread: plan, launch, await, commit, with as many steps launched as the engine runs
// ahead; asleep on a condition variable when nothing can run. The one thread that touches the
// engine and every session.
#ifndef RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
#define RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_

#include <atomic>
#include <deque>
#include <thread>

#include "server/engine/engine.h"
#include "server/scheduler/scheduler.h"

namespace rivulet {

class EngineLoop {
 public:
  // Starts the thread; both outlive this.
  EngineLoop(Engine& engine, Scheduler& scheduler);
  // Ends after the steps in flight. Requests that still run are left as they are: abort them and
  // wait first (Scheduler::AbortAll, WaitUntilIdle).
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

 private:
  void Run();
  bool LaunchNext();  // false if there was nothing to run
  void CommitOldest();

  Engine& engine_;
  Scheduler& scheduler_;
  std::deque<StepTicket> in_flight_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
