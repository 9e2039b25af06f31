// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the doors: all of the server behind them, with FakeEngine.
#ifndef RIVULET_SERVER_SERVICE_SERVICE_FIXTURE_H_
#define RIVULET_SERVER_SERVICE_SERVICE_FIXTURE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string_view>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "server/scheduler/engine_loop.h"
#include "server/scheduler/test_support.h"
#include "server/service/service_context.h"

namespace rivulet {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Slow enough for streams to be cancelled while they run, and fails on request.
class PacedEngine : public FakeEngine {
 public:
  explicit PacedEngine(uint32_t sessions) : FakeEngine(sessions) {
    fail_row = [this](const StepRow&) {
      return fails ? absl::InternalError("no luck") : absl::OkStatus();
    };
  }
  StepTicket Launch(const StepPlan& plan) override {
    std::this_thread::sleep_for(pace.load());
    return FakeEngine::Launch(plan);
  }
  // Set by the test while the engine runs.
  std::atomic<milliseconds> pace{milliseconds(0)};
  std::atomic<bool> fails{false};
};

// Runs out of memory, or waits, when a test says so.
class ControlledTokenizer : public FakeTokenizer {
 public:
  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override {
    if (no_memory_in_encode) throw std::bad_alloc();
    entered = true;
    while (hold_encode) std::this_thread::yield();
    return FakeTokenizer::EncodeMarked(text, plain);
  }
  std::string_view TokenBytes(uint32_t id) const override {
    if (no_memory_in_bytes) throw std::bad_alloc();
    return FakeTokenizer::TokenBytes(id);
  }
  std::atomic<bool> no_memory_in_encode{false}, no_memory_in_bytes{false}, hold_encode{false};
  mutable std::atomic<bool> entered{false};  // EncodeMarked was called
};

// Scheduler, engine thread, sessions and worker pool, for four sessions of a toy model.
class ServiceStack : public testing::Test {
 protected:
  static constexpr uint32_t kSlots = 4;

  explicit ServiceStack(Clock::duration stall_limit = seconds(300), int64_t bos_id = -1) {
    model_.info.set_name("toy");
    if (bos_id >= 0) model_.begin_ids = {static_cast<uint32_t>(bos_id)};
    model_.info.set_state_bytes_per_session(1000);
    model_.info.set_fold_interval(engine_.capacity().fold_interval);
    model_.info.set_vocab_size(FakeEngine::kVocab);
    model_.tokenizer = &request_tokenizer_;
    SchedulerOptions options;
    options.max_queue = 2;
    options.keep_positions = 2;
    options.stall_limit = stall_limit;
    options.tokenizer = &tokenizer_;
    scheduler_ = std::make_unique<Scheduler>(engine_, sessions_, dispatcher_, metrics_, options);
    loop_ = std::make_unique<EngineLoop>(engine_, *scheduler_);
    context_ = std::make_unique<ServiceContext>(
        ServiceContext{model_, *scheduler_, sessions_, pool_, metrics_, calls_, authenticator_,
                       /*max_prompt=*/1000});
  }

  uint64_t Count(Outcome outcome) const {
    return metrics_.requests[static_cast<size_t>(outcome)].value();
  }
  // Polls until `done`, which the server brings about soon after what a client sees.
  static bool Eventually(const std::function<bool()>& done) {
    const TimePoint limit = Clock::now() + seconds(20);
    while (!done()) {
      if (Clock::now() > limit) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  bool WaitUntilIdle() { return scheduler_->WaitUntilIdle(Clock::now() + seconds(10)); }

  FakeTokenizer tokenizer_;                // the scheduler's
  ControlledTokenizer request_tokenizer_;  // the calls'
  PacedEngine engine_{kSlots};
  Metrics metrics_;
  CallCount calls_;
  Authenticator authenticator_;
  SessionTable sessions_{{}, metrics_};
  ServedModel model_;
  Dispatcher dispatcher_;
  WorkerPool pool_{2, 100};
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<ServiceContext> context_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SERVICE_SERVICE_FIXTURE_H_
