// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/thread_name.h"
#include "server/log/log.h"

namespace rivulet {
namespace {

// Given up when memory runs out, so that there is some to end the requests with. Small enough that
// the allocator keeps it for this thread.
constexpr size_t kReserveBytes = 64 << 10;
constexpr std::chrono::milliseconds kPause{10};
// Planning and launching a step of 1024 rows takes about 1.
constexpr std::chrono::milliseconds kLongestLead{3};

}  // namespace

EngineLoop::EngineLoop(Engine& engine, Scheduler& scheduler, DeviceFailureHandlers handlers)
    : engine_(engine),
      scheduler_(scheduler),
      handlers_(std::move(handlers)),
      last_failure_(handlers_.last_failure) {
  in_flight_.reserve(engine_.depth());
  thread_ = std::thread([this] { Run(); });
}

EngineLoop::~EngineLoop() {
  stopping_ = true;
  scheduler_.Wake();
  thread_.join();
}

void EngineLoop::Run() {
  NameThisThread("rivulet-engine");
  while (!stopping_) {
    try {
      RunSteps();
    } catch (const std::bad_alloc&) {
      Recover();
    }
  }
}

// Until it shall stop and no step is in flight.
void EngineLoop::RunSteps() {
  reserve_.reset(new (std::nothrow) std::byte[kReserveBytes]);
  while (!stopping_) {
    if (MayLaunch() && LaunchNext()) continue;
    if (!in_flight_.empty()) {
      CommitOldest();
    } else if (!stopping_) {  // Plan may have taken the destructor's Wake
      scheduler_.WaitForWork();
    }
  }
  while (!in_flight_.empty()) CommitOldest();
}

// Each part can be repeated from its beginning if it finds no memory.
void EngineLoop::Recover() {
  reserve_.reset();
  for (;;) {
    try {
      return EndRequests();
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kPause);
    }
  }
}

void EngineLoop::EndRequests() {
  while (!in_flight_.empty()) {
    engine_.Await(in_flight_.front());
    in_flight_.erase(in_flight_.begin());
  }
  scheduler_.OutOfMemory(Clock::now());
  LogError("out_of_memory", {{"error", "all requests were ended"},
                             {"remedy", "give the server less --state-memory"}});
}

// A step beside the one in flight is planned as late as possible: where a request comes in until
// then, it is planned with the request, after the one in flight.
bool EngineLoop::MayLaunch() {
  if (gave_up_ || in_flight_.size() >= engine_.depth()) return false;
  if (in_flight_.empty()) return true;
  if (!scheduler_.MayPlanAhead()) return false;
  const auto lead = std::min<Clock::duration>(launch_time_ + launch_time_ / 4, kLongestLead);
  if (!engine_.SleepTowardsEnd(in_flight_.back(), lead)) return false;
  return !stopping_ && !scheduler_.HasNews();
}

bool EngineLoop::LaunchNext() {
  const TimePoint start = Clock::now();
  const StepPlan& plan = scheduler_.Plan(start);
  if (plan.empty()) return false;
  in_flight_.push_back(engine_.Launch(plan));
  if (in_flight_.size() > 1) {
    launch_time_ = std::max(Clock::now() - start, launch_time_ - launch_time_ / 16);
  }
  scheduler_.FollowDrafts();
  return true;
}

void EngineLoop::CommitOldest() {
  StepResult result = engine_.Await(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
  if (!engine_.failure().ok()) return RestartEngine();
  scheduler_.Commit(std::move(result), Clock::now());
}

// The steps in flight found the device failed, too. Their requests end here, not by their results.
void EngineLoop::RestartEngine() {
  while (!in_flight_.empty()) {
    engine_.Await(in_flight_.front());
    in_flight_.erase(in_flight_.begin());
  }
  const absl::Status failure = engine_.failure();
  const TimePoint now = Clock::now();
  LogError("device_failed", {{"error", std::string(failure.message())}});
  handlers_.failed(failure);
  scheduler_.DeviceLost(failure, now);
  const bool again = last_failure_.has_value() && now - *last_failure_ < kFailureInterval;
  last_failure_ = now;
  if (again) {
    LogError("device_given_up", {{"error", std::string(failure.message())}});
    gave_up_ = true;
    return handlers_.gave_up(failure);
  }
  const absl::Status restarted = engine_.Restart();
  if (!restarted.ok()) return LeaveToNextProcess(restarted);
  LogWarning("device_restarted", {{"seconds", Seconds(Clock::now() - now)}});
  handlers_.restarted();
}

void EngineLoop::LeaveToNextProcess(const absl::Status& why) {
  LogError("device_needs_new_process", {{"error", std::string(why.message())}});
  gave_up_ = true;
  scheduler_.StopAdmission();
  scheduler_.AbortAll(absl::UnavailableError(
      "the GPU failed and the server starts over; try again when it is ready"));
  RIVULET_CHECK(scheduler_.Plan(Clock::now()).empty(), "a request outlived its abort");
  handlers_.start_over(why, *last_failure_);
}

}  // namespace rivulet
