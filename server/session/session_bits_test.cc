// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Same request, same bits (docs/architecture.md#bit-equality), over the real engine: each session's
// log-probabilities and sampled tokens are those of the same session alone: with any sessions
// beside it, any cut of its prompt, forked or not, and any number of threads.
#include <algorithm>
#include <map>
#include <random>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/same_logprobs.h"
#include "server/engine/test_models.h"
#include "server/session/session.h"

namespace rivulet {
namespace {

// A session with what the engine said of each of its tokens: all log-probabilities after it.
struct Traced {
  std::unique_ptr<Session> session;
  SamplingParams params;  // its seed names the session
  std::vector<uint32_t> prompt;
  std::vector<Logprobs> trace;
};

class SessionBitsTest : public testing::TestWithParam<TestModel> {
 protected:
  static constexpr size_t kNewTokens = 20;

  void SetUp() override {
    auto model = MakeRandomModel(nlohmann::json::parse(GetParam().config), 1, LoadOptions());
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
  }

  std::unique_ptr<Engine> MakeEngine(size_t threads) {
    EngineOptions options;
    options.threads = threads;
    options.state_memory = 64 << 20;
    auto engine = MakeCpuEngine(model_, options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  static Traced NewSession(Engine& engine, std::vector<uint32_t> prompt, uint64_t seed) {
    Traced traced;
    traced.session = *Session::Create(engine.states());
    traced.session->Append(prompt);
    traced.prompt = std::move(prompt);
    traced.params.repetition_penalty = 1.2f;
    traced.params.seed = seed;
    return traced;
  }

  static bool Done(const Traced& traced) {
    return traced.session->tokens().size() == traced.prompt.size() + kNewTokens;
  }

  // Adds the session's next `count` tokens to the plan.
  void AddRow(StepPlan& plan, Traced& traced, size_t count) {
    Session& session = *traced.session;
    StepRow& row = plan.rows.emplace_back();
    row.segment = *session.PlanSegment(plan.tokens.size(), count);
    session.tokens().CopyTo(session.position(), count, plan.tokens);
    row.score_targets.assign(count, 0);
    row.score_top = kMaxTopLogprobs;
    row.samples = count == session.pending() ? 1 : 0;
    row.spec.params = &traced.params;
    row.spec.session_counts = &session.token_counts();
    row.spec.position = session.position() + count;
  }

  void Commit(const RowResult& result, Traced& traced) {
    ASSERT_TRUE(result.status.ok()) << result.status;
    traced.session->CommitSegment();
    traced.trace.insert(traced.trace.end(), result.scores.begin(), result.scores.end());
    for (const SampledToken& sample : result.samples) traced.session->Append(sample.token);
  }

  // The prompt in one step, then token by token, without other sessions and with one thread.
  Traced Alone(const std::vector<uint32_t>& prompt, uint64_t seed) {
    auto engine = MakeEngine(1);
    Traced traced = NewSession(*engine, prompt, seed);
    while (!Done(traced)) {
      StepPlan plan;
      AddRow(plan, traced, traced.session->pending());
      Commit(engine->Step(plan).rows[0], traced);
    }
    KeepSessionTokens(traced);
    return traced;
  }

  // The engine goes first; what is compared stays.
  void KeepSessionTokens(Traced& traced) {
    tokens_[traced.params.seed] = traced.session->tokens().Copy();
    traced.session.reset();
  }

  void ExpectSame(const Traced& alone, const Traced& other) {
    EXPECT_EQ(tokens_[alone.params.seed], other.session->tokens().Copy());
    ASSERT_EQ(alone.trace.size(), other.trace.size());
    for (size_t i = 0; i < alone.trace.size(); ++i) {
      ASSERT_TRUE(Same(alone.trace[i], other.trace[i])) << "token " << i;
    }
  }

  // Steps with random members and random cuts until all are done; forks of unfinished sessions
  // join.
  void RunTogether(std::mt19937& random, std::vector<Traced>& all, uint64_t& next_seed) {
    while (!std::all_of(all.begin(), all.end(), Done)) {
      StepPlan plan;
      std::vector<size_t> members;
      for (size_t i = 0; i < all.size(); ++i) {
        if (Done(all[i]) || random() % 3 == 0) continue;
        AddRow(plan, all[i], 1 + random() % std::min<size_t>(all[i].session->pending(), 20));
        members.push_back(i);
      }
      const StepResult result = engine_->Step(plan);
      for (size_t m = 0; m < members.size(); ++m) Commit(result.rows[m], all[members[m]]);
      if (all.size() < 12) MaybeFork(all, random() % all.size(), next_seed);
    }
  }

  // While the prompt is being read a fork has no sampled token yet, so it is a session of its own
  // with the same prompt and another seed.
  static void MaybeFork(std::vector<Traced>& all, size_t parent, uint64_t& next_seed) {
    if (all[parent].session->tokens().size() != all[parent].prompt.size()) return;
    Traced fork;
    fork.session = *all[parent].session->Fork();
    fork.prompt = all[parent].prompt;
    fork.trace = all[parent].trace;
    fork.params = all[parent].params;
    fork.params.seed = next_seed++;
    all.push_back(std::move(fork));
  }

  std::shared_ptr<const LoadedModel> model_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, std::vector<uint32_t>> tokens_;  // by seed
};

TEST_P(SessionBitsTest, EverySessionRunsAsIfAlone) {
  std::mt19937 random(TestSeed());
  for (size_t threads : {1, 2, 3}) {
    engine_ = MakeEngine(threads);
    std::vector<Traced> all;
    uint64_t next_seed = 1000 * threads;
    for (int i = 0; i < 4; ++i) {
      std::vector<uint32_t> prompt(30 + random() % 60);
      for (uint32_t& token : prompt) token = random() % model_->spec.vocab;
      all.push_back(NewSession(*engine_, prompt, next_seed++));
    }
    RunTogether(random, all, next_seed);
    EXPECT_GT(all.size(), 4u) << "no session was forked";
    for (const Traced& traced : all) ExpectSame(Alone(traced.prompt, traced.params.seed), traced);
    all.clear();
    EXPECT_EQ(engine_->states().bases().used(), 0u);
    EXPECT_EQ(engine_->states().tails().used(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SessionBitsTest, testing::ValuesIn(AllTestModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rivulet
