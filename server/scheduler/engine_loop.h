// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine thread: plan, launch, await, commit, with as many steps launched as the engine runs
// ahead; asleep on a condition variable when nothing can run. The one thread that touches the
// engine and every session.
//
// If memory runs out on it, it ends all requests and goes on
// (docs/architecture.md#when-memory-runs-out).
#ifndef RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
#define RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

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
  void RunSteps();
  void Recover();
  void EndRequests();
  bool LaunchNext();  // false if there was nothing to run
  void CommitOldest();

  Engine& engine_;
  Scheduler& scheduler_;
  std::vector<StepTicket> in_flight_;  // the oldest first; has room for all
  std::unique_ptr<std::byte[]> reserve_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
