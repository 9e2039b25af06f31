// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests that step a scheduler by hand, over an engine of theirs and by a clock of theirs: what
// it needs, and its clients.
#ifndef RIVULET_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
#define RIVULET_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "server/engine/fake_engine.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/test_support.h"

namespace rivulet {

// EngineType: an Engine, or a std::unique_ptr of one.
template <typename EngineType = FakeEngine>
class SchedulerFixture : public testing::Test {
 protected:
  // With what the engine is made of.
  template <typename... Arguments>
  explicit SchedulerFixture(Arguments&&... engine) : engine_(std::forward<Arguments>(engine)...) {}

  // What a test has given to the scheduler, such as drafters, is destroyed after it.
  void TearDown() override { scheduler_ = nullptr; }

  void MakeScheduler(SchedulerOptions options = {}) {
    scheduler_ =
        std::make_unique<Scheduler>(engine(), sessions_, dispatcher_, metrics_, std::move(options));
  }
  Engine& engine() {
    if constexpr (std::is_base_of_v<Engine, EngineType>) {
      return engine_;
    } else {
      return *engine_;
    }
  }

  Client& NewClient(uint32_t completions = 1, size_t capacity = Outbox::kDefaultCapacityTokens) {
    return clients_.emplace_back(completions, capacity);
  }
  Client& Submit(std::vector<uint32_t> prompt, uint32_t max_tokens, uint32_t completions = 1) {
    Client& client = NewClient(completions);
    auto request = MakeRequest(client, std::move(prompt), max_tokens);
    client.id = request->id;
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return client;
  }

  // False when there is nothing to run.
  bool Step() {
    const StepPlan& plan = scheduler_->Plan(now_);
    if (plan.empty()) return false;
    last_rows_ = plan.rows.size();
    now_ += step_time_;
    scheduler_->Commit(engine().Step(plan), now_);
    return true;
  }
  void ReadAll() {
    for (Client& client : clients_) client.Read();
  }
  void RunAll() {
    while (Step()) ReadAll();
    ReadAll();
  }

  Clock::duration step_time_{0};
  size_t last_rows_ = 0;  // of the last step
  TimePoint now_ = TimePoint(std::chrono::seconds(1000));
  EngineType engine_;
  Metrics metrics_;
  SessionTable sessions_{{.now = [this] { return now_; }}, metrics_};
  Dispatcher dispatcher_;
  std::deque<Client> clients_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
