// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The engine thread: plan, launch, await, commit; asleep on a condition variable when nothing can
// run. Where the engine runs ahead and no row loses by it, a step is planned and launched shortly
// before the one in flight ends (docs/architecture.md#running-ahead). The one thread that touches
// the engine and every session.
//
// If memory runs out on it, it ends all requests and goes on
// (docs/architecture.md#when-memory-runs-out). If the device fails, it ends the requests that run,
// drops the sessions and starts the engine again (docs/architecture.md#when-the-device-fails).
#ifndef RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
#define RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "server/engine/engine.h"
#include "server/scheduler/scheduler.h"

namespace rivulet {

// What the engine thread calls when the device fails.
struct DeviceFailureHandlers {
  std::function<void(const absl::Status&)> failed = [](const absl::Status&) {};
  std::function<void()> restarted = [] {};
  // It failed then, does not start again in this process, and may in a new one. All requests have
  // ended, and no new one is admitted.
  std::function<void(const absl::Status&, TimePoint failed)> start_over = [](const absl::Status&,
                                                                             TimePoint) {};
  // It failed again within kFailureInterval: the process must end. Must not return in production.
  std::function<void(const absl::Status&)> gave_up = [](const absl::Status&) {};
  // When it failed before this loop began; nullopt: it did not.
  std::optional<TimePoint> last_failure = std::nullopt;
};

class EngineLoop {
 public:
  static constexpr std::chrono::seconds kFailureInterval{60};

  // Starts the thread; both outlive this.
  EngineLoop(Engine& engine, Scheduler& scheduler, DeviceFailureHandlers handlers = {});
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
  void RestartEngine();
  void LeaveToNextProcess(const absl::Status& why);
  bool MayLaunch();
  bool LaunchNext();  // false if there was nothing to run
  void CommitOldest();

  Engine& engine_;
  Scheduler& scheduler_;
  const DeviceFailureHandlers handlers_;
  std::optional<TimePoint> last_failure_;
  bool gave_up_ = false;               // no step runs any more
  std::vector<StepTicket> in_flight_;  // the oldest first; has room for all
  Clock::duration launch_time_{};      // that planning and launching a step ahead takes
  std::unique_ptr<std::byte[]> reserve_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_ENGINE_LOOP_H_
