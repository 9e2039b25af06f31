// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// An engine over a real mixer with sessions and a scheduler, for tests that compare the bits of
// answers. Time is virtual.
#ifndef RIVULET_SERVER_SCHEDULER_STACK_FIXTURE_H_
#define RIVULET_SERVER_SCHEDULER_STACK_FIXTURE_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/engine/cpu_engine.h"
#include "server/engine/fake_run_ahead.h"
#include "server/engine/same_logprobs.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/test_support.h"

namespace rivulet {

inline void ExpectSame(const Received& a, const Received& b) {
  ASSERT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.text, b.text);
  ASSERT_EQ(a.reason, b.reason);
  ASSERT_EQ(a.matched_stop, b.matched_stop);
  ASSERT_EQ(a.usage.completion_tokens, b.usage.completion_tokens);
  ASSERT_TRUE(Same(a.logprobs, b.logprobs));
}

// The head for further tokens too, of a model that has one, and tails that forget drafts.
inline LoadOptions WithHead() {
  LoadOptions options;
  options.predictor = true;
  options.mixer.drafts = true;
  return options;
}

// What is asked; the scheduler's Request is made from it each time.
struct Ask {
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 0;
  uint32_t completions = 1;
  bool keep_choices = false;
  SamplingParams sampling = {};
  StopRules stop = {};
  std::shared_ptr<TokenGrammar> grammar = nullptr;
  uint32_t logprobs = 0;
  bool score_prompt = false;
  uint32_t score_top = 0;
  std::string cache_salt = {};
};

// Borders of SchedulerOptions.
struct Borders {
  uint32_t keep = 0;
  uint32_t in_prompts = 0;
};

// The defaults, or a few.
inline Borders AnyBorders(std::mt19937_64& random) {
  if (random() % 2 == 0) return {kAutomaticBorders, kAutomaticBorders};
  return {8, static_cast<uint32_t>(random() % 3 * 16)};
}

// Engine, sessions and scheduler. Time is virtual, so that prompts are cut at random, and requests
// are those of tenants at random, so that rows take turns. `depth`:
// steps that may be launched and not committed.
class Stack {
 public:
  // The default memory drops no session for room.
  Stack(std::shared_ptr<const LoadedModel> model, size_t threads, size_t depth, uint64_t seed,
        uint32_t keep_positions = 0, uint64_t state_memory = uint64_t{1} << 30,
        DraftOptions drafts = {}, uint64_t prefix_cache = 0, Borders borders = {})
      : Stack(MakeEngine(std::move(model), threads, state_memory), nullptr, depth, seed,
              keep_positions, drafts, prefix_cache, borders) {}
  // On an engine that outlives it and that others use too, in turns.
  Stack(Engine& engine, uint64_t seed, uint32_t keep_positions = 0, DraftOptions drafts = {},
        uint64_t prefix_cache = 0, Borders borders = {})
      : Stack(nullptr, &engine, 1, seed, keep_positions, drafts, prefix_cache, borders) {}

  static std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const LoadedModel> model,
                                            size_t threads, uint64_t state_memory) {
    EngineOptions options;
    options.threads = threads;
    options.state_memory = state_memory;
    return *MakeCpuEngine(std::move(model), options);
  }

  Client& Submit(const Ask& ask, SessionLease lease = {}) {
    Client& client = clients_.emplace_back(ask.completions);
    auto request = MakeRequest(client, ask.prompt, ask.max_tokens);
    request->session = std::move(lease);
    request->keep_choices = ask.keep_choices;
    request->sampling = ask.sampling;
    request->stop = ask.stop;
    request->grammar = ask.grammar;
    request->logprobs = ask.logprobs;
    request->score_prompt = ask.score_prompt;
    request->score_top = ask.score_top;
    request->cache_salt = ask.cache_salt;
    request->tenant = tenants_[random_() % some_tenants_];
    client.id = request->id;
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return client;
  }

  void Cancel(const Client& client) { scheduler_->Cancel(client.id); }

  bool Step() {
    const StepPlan& plan = scheduler_->Plan(now_);
    if (!plan.empty()) launched_.push_back(engine().Launch(plan));
    if (random_() % 2 == 0) scheduler_->FollowDrafts();
    const bool runs = !launched_.empty();
    const bool runs_ahead = !plan.empty() && launched_.size() < engine().depth();
    if (runs && (!runs_ahead || random_() % 4 == 0)) CommitOldest();
    // Also without a step: a turn that asks for nothing ends in Plan.
    for (Client& client : clients_) client.Read();
    return runs;
  }

  // To the end of everything.
  Client& Run(const Ask& ask, SessionLease lease = {}) {
    Client& client = Submit(ask, std::move(lease));
    while (Step()) continue;
    client.Read();
    EXPECT_EQ(client.end, absl::OkStatus());
    return client;
  }

  // REQUIRES: all have ended.
  void ForgetClients() { clients_.clear(); }

  int64_t before_first_token() const { return metrics_.requests_waiting.value(); }
  SessionTable& sessions() { return sessions_; }
  const Metrics& metrics() const { return metrics_; }
  StatePool& states() { return engine().states(); }
  // A step without work, in which what was dropped is destroyed.
  void Reap() { scheduler_->Plan(now_); }
  const PrefixCache& prefix_cache() const { return scheduler_->prefix_cache(); }
  void ForgetPrefixes() { scheduler_->ForgetPrefixes(); }
  std::vector<uint32_t> TokensOf(const std::string& id) {
    return sessions_.LeaseForReading(id)->state()->tokens().Copy();
  }
  const Tokenizer& tokenizer() const { return tokenizer_; }

  Engine& engine() { return ahead_ != nullptr ? static_cast<Engine&>(*ahead_) : *engine_; }

 private:
  Stack(std::unique_ptr<Engine> own, Engine* shared, size_t depth, uint64_t seed,
        uint32_t keep_positions, DraftOptions drafts, uint64_t prefix_cache, Borders borders)
      : random_(seed), own_(std::move(own)), engine_(shared == nullptr ? own_.get() : shared) {
    if (depth == 2) ahead_ = std::make_unique<RunAheadEngine>(*engine_, /*lazy=*/false);
    SchedulerOptions options;
    options.tokenizer = &tokenizer_;
    options.eos_ids = {FakeTokenizer::kEos};
    options.limits.max_prompt_tokens = 1 + random_() % 50;
    options.keep_positions = keep_positions;
    options.keep_borders = borders.keep;
    options.prompt_borders = borders.in_prompts;
    options.drafts = drafts;
    options.prefix_cache.bytes = prefix_cache;
    scheduler_ = std::make_unique<Scheduler>(engine(), sessions_, dispatcher_, metrics_, options);
    if (random_() % 2 == 0) some_tenants_ = tenants_.size();
  }

  void CommitOldest() {
    StepResult result = engine().Await(launched_.front());
    launched_.pop_front();
    const std::chrono::microseconds cost(1 + random_() % 3000);
    result.device_seconds = std::chrono::duration<double>(cost).count();
    now_ += cost;
    scheduler_->Commit(std::move(result), now_);
  }

  std::mt19937_64 random_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1000));
  const std::array<std::shared_ptr<Tenant>, 3> tenants_ = {nullptr, std::make_shared<Tenant>("red"),
                                                           std::make_shared<Tenant>("blue")};
  // One in half of the stacks, which then draft more: there are no drafts beside prompts.
  size_t some_tenants_ = 1;
  FakeTokenizer tokenizer_;
  std::unique_ptr<Engine> own_;
  Engine* const engine_;
  std::unique_ptr<RunAheadEngine> ahead_;  // of depth 2
  std::deque<StepTicket> launched_;
  Metrics metrics_;
  uint64_t sessions_made_ = 1000000;
  // Ids in the order of creation, so that a seed replays what depends on that of the ids.
  SessionTable sessions_{{.make_id = [this] { return std::to_string(sessions_made_++); }},
                         metrics_};
  Dispatcher dispatcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Client> clients_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_STACK_FIXTURE_H_
