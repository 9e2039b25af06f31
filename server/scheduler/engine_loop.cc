// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/engine_loop.h"

#include <utility>

#include "kernels/base/thread_name.h"

namespace rivulet {

EngineLoop::EngineLoop(Engine& engine, Scheduler& scheduler)
    : engine_(engine), scheduler_(scheduler), thread_([this] { Run(); }) {}

EngineLoop::~EngineLoop() {
  stopping_ = true;
  scheduler_.Wake();
  thread_.join();
}

void EngineLoop::Run() {
  NameThisThread("rivulet-engine");
  while (!stopping_) {
    if (in_flight_.size() < engine_.depth() && LaunchNext()) continue;
    if (in_flight_.empty()) {
      scheduler_.WaitForWork();
    } else {
      CommitOldest();
    }
  }
  while (!in_flight_.empty()) CommitOldest();
}

bool EngineLoop::LaunchNext() {
  const StepPlan& plan = scheduler_.Plan(Clock::now());
  if (plan.empty()) return false;
  in_flight_.push_back(engine_.Launch(plan));
  return true;
}

void EngineLoop::CommitOldest() {
  StepResult result = engine_.Await(in_flight_.front());
  in_flight_.pop_front();
  scheduler_.Commit(std::move(result), Clock::now());
}

}  // namespace rivulet
