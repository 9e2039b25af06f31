// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a model's own head guesses depends on the session's tokens alone: long random schedules of
// prompts, drafts that are right in part, forks and rewinds, where each guess must be that of the
// same tokens in a new session.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/engine/cpu_engine.h"
#include "server/engine/random_model.h"
#include "server/engine/test_models.h"
#include "server/session/session.h"

namespace rivulet {
namespace {

using Tokens = std::vector<uint32_t>;
constexpr uint64_t kLongest = 150;
constexpr size_t kMostSessions = 4;

std::shared_ptr<const LoadedModel> Load(const std::string& name) {
  LoadOptions options;
  options.predictor = true;
  if (name.starts_with("upstream")) return *LoadModel("tests/parity/fixtures/" + name, options);
  for (const TestModel& test : AllTestModels()) {
    if (test.name == name) return *MakeRandomModel(nlohmann::json::parse(test.config), 1, options);
  }
  return nullptr;
}

class GuessesTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto engine = MakeCpuEngine(Load(GetParam()), {.threads = 2});
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    params_.seed = random_();
    sessions_.reserve(kMostSessions);  // references into it stay
    sessions_.push_back(*Session::Create(engine_->states()));
    Feed(*sessions_[0], Random(5), 0);
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }
  Tokens Random(size_t count) {
    Tokens tokens(count);
    for (uint32_t& token : tokens) token = static_cast<uint32_t>(Below(engine_->vocab_size()));
    return tokens;
  }

  void Run(const Segment& segment, Tokens tokens) {
    StepPlan plan;
    plan.tokens = std::move(tokens);
    plan.rows.emplace_back().segment = segment;
    const StepResult result = engine_->Step(plan);
    ASSERT_TRUE(result.rows[0].status.ok()) << result.rows[0].status;
  }
  // All but the last token, in pieces of up to `piece` (0: one).
  void Feed(Session& session, const Tokens& tokens, size_t piece) {
    session.Append(tokens);
    while (session.pending() > 1) {
      const size_t count = piece == 0 ? session.pending() - 1
                                      : std::min<size_t>(session.pending() - 1, 1 + Below(piece));
      Tokens now;
      session.tokens().CopyTo(session.position(), count, now);
      const bool keeps = !session.kept().empty() && Below(2) == 0;
      const BorderRule borders = {keeps ? engine_->capacity().fold_interval : 0u, 100};
      Run(*session.PlanSegment(0, count, borders), std::move(now));
      session.CommitSegment();
    }
  }
  // A step with drafts, of which the first `right` are.
  void Check(Session& session, const Tokens& drafts, size_t right) {
    Tokens tokens = {session.tokens()[session.position()]};
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
    Run(*session.PlanDrafts(0, drafts.size()), std::move(tokens));
    session.CommitTokens(1 + right);
    session.CancelSegment();
    session.Append(std::span(drafts).first(right));
    session.Append(Random(1)[0]);
  }

  // Of all these at once.
  std::vector<Tokens> Guess(const std::vector<Session*>& sessions, uint32_t most) {
    GuessPlan plan;
    std::vector<size_t> rows;
    for (size_t i = 0; i < sessions.size(); ++i) {
      Session& session = *sessions[i];
      const uint64_t left = 15 - session.position() % 16;
      if (left == 0) continue;
      GuessRow& row = plan.rows.emplace_back();
      row.segment = *session.PlanSegment(plan.tokens.size(), 1);
      row.count = static_cast<uint32_t>(std::min<uint64_t>(most, left));
      row.params = &params_;
      row.place = {1, session.tokens().size()};
      plan.tokens.push_back(session.tokens()[session.position()]);
      rows.push_back(i);
    }
    std::vector<Tokens> guesses(sessions.size());
    if (plan.rows.empty()) return guesses;
    const GuessResult result = engine_->Guess(plan);
    EXPECT_TRUE(result.status.ok()) << result.status;
    for (size_t r = 0; r < rows.size(); ++r) {
      guesses[rows[r]] = result.guesses[r];
      EXPECT_EQ(result.guesses[r].size(), plan.rows[r].count);
      sessions[rows[r]]->CancelSegment();
    }
    return guesses;
  }

  Tokens GuessAnew(const Session& session, uint32_t most) {
    const auto anew = *Session::Create(engine_->states());
    Feed(*anew, session.tokens().Copy(), 0);
    return Guess({anew.get()}, most)[0];
  }

  void GuessAndCompare() {
    std::vector<Session*> sessions;
    for (const auto& session : sessions_) {
      if (Below(3) != 0) sessions.push_back(session.get());
    }
    const auto most = static_cast<uint32_t>(1 + Below(5));
    const std::vector<Tokens> guesses = Guess(sessions, most);
    for (size_t i = 0; i < sessions.size(); ++i) {
      ASSERT_EQ(guesses[i], GuessAnew(*sessions[i], most)) << sessions[i]->tokens().size();
      compared_ += guesses[i].size();
    }
  }

  void Go(std::unique_ptr<Session>& session) {
    switch (Below(6)) {
      case 0:
        return Feed(*session, Random(1 + Below(60)), 50);
      case 1:
        if (sessions_.size() < kMostSessions) sessions_.push_back(*session->Fork());
        return;
      case 2:
        return Rewind(session);
      default:
        const Tokens drafts = Random(Below(std::min<size_t>(session->MostDrafts(), 6) + 1));
        return Check(*session, drafts, Below(drafts.size() + 1));
    }
  }
  // To a position that it keeps, or to any after it.
  void Rewind(std::unique_ptr<Session>& session) {
    session->Rest();
    if (Below(2) == 0) session->Keep(3, nullptr);
    if (!session->kept().empty()) {
      const uint64_t oldest = session->kept().front().tokens;
      const uint64_t to = oldest + Below(session->tokens().size() - oldest + 1);
      session = *session->ForkAt(to, /*with_borders=*/Below(2) == 0);
    }
    ASSERT_TRUE(session->Wake().ok());
    Feed(*session, {}, 7);
  }

  std::mt19937_64 random_{TestSeed()};
  std::unique_ptr<Engine> engine_;
  SamplingParams params_;
  std::vector<std::unique_ptr<Session>> sessions_;
  size_t compared_ = 0;
};

TEST_P(GuessesTest, DependOnTheTokensAlone) {
  for (int i = 0; i < 400 && !HasFatalFailure(); ++i) {
    auto& session = sessions_[Below(sessions_.size())];
    Go(session);
    if (Below(2) == 0) GuessAndCompare();
    if (session->tokens().size() < kLongest) continue;
    session = *Session::Create(engine_->states());
    Feed(*session, Random(1 + Below(40)), 20);
  }
  EXPECT_GT(compared_, 200u);
}

INSTANTIATE_TEST_SUITE_P(Models, GuessesTest,
                         testing::Values("Qwen3Next", "Experts", "upstream_hf_qwen3_5_predictor",
                                         "upstream_hf_nemotron_h_predictor"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rivulet
