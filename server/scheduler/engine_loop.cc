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
    const StepPlan& plan = scheduler_.Plan(Clock::now());
    if (plan.empty()) {
      scheduler_.WaitForWork();
    } else {
      StepResult result = engine_.Await(engine_.Launch(plan));
      scheduler_.Commit(std::move(result), Clock::now());
    }
  }
}

}  // namespace rivulet
