// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// When a step may be planned before the one in flight is committed: never at the cost of a row.
// That it changes no token: scheduler_random_test and scheduler_bits_test.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "server/drafts/drafter.h"
#include "server/engine/fake_run_ahead.h"
#include "server/grammar/grammar_store.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

struct EngineBelow {
  FakeEngine below;
};

// With room for so many sessions, and one base beside those of each.
class AheadEngine : private EngineBelow, public RunAheadEngine {
 public:
  explicit AheadEngine(uint32_t sessions, const std::vector<PageKind>& pages = {})
      : EngineBelow{FakeEngine(sessions, pages)}, RunAheadEngine(below, /*lazy=*/false) {}
  FakeEngine& fake() { return below; }
};

class RunningAheadTest : public SchedulerFixture<AheadEngine> {
 protected:
  static constexpr uint32_t kSessions = 4;

  RunningAheadTest() : RunningAheadTest(std::vector<PageKind>{}) {}
  explicit RunningAheadTest(const std::vector<PageKind>& pages)
      : SchedulerFixture(kSessions, pages) {
    MakeScheduler();
  }

  // A stream without stops.
  std::unique_ptr<Request> NewRequest(std::vector<uint32_t> prompt, uint32_t max_tokens) {
    auto request = MakeRequest(NewClient(), std::move(prompt), max_tokens);
    request->stop.ignore_eos = true;
    return request;
  }
  void Start(std::vector<uint32_t> prompt, uint32_t max_tokens) {
    auto request = NewRequest(std::move(prompt), max_tokens);
    ASSERT_TRUE(scheduler_->Submit(request).ok());
  }

  // Plans and launches; false if there was nothing to run.
  bool Launch() {
    const StepPlan& plan = scheduler_->Plan(now_);
    if (plan.empty()) return false;
    in_flight_.push_back(engine().Launch(plan));
    last_rows_ = plan.rows.size();
    return true;
  }
  void Commit() {
    scheduler_->Commit(engine().Await(in_flight_.front()), now_);
    in_flight_.pop_front();
    ReadAll();
  }
  // Whether the step that is launched now may be followed before it is committed.
  bool LaunchedIsFollowed() {
    EXPECT_TRUE(Launch());
    const bool follows = scheduler_->MayPlanAhead();
    Commit();
    return follows;
  }

  std::deque<StepTicket> in_flight_;
};

// Its completion begins when the step is committed.
TEST_F(RunningAheadTest, NotBehindAPrompt) {
  Start({1, 2, 3}, 10);
  EXPECT_FALSE(LaunchedIsFollowed());
  EXPECT_TRUE(LaunchedIsFollowed());
  Start({4}, 10);
  for (int step = 0; step < 4; ++step) {
    const bool began = !clients_[1].tokens().empty();
    EXPECT_EQ(LaunchedIsFollowed(), began) << "nor while a prompt waits for its step";
  }
  EXPECT_GT(clients_[1].tokens().size(), 1u);
}

// As the engine's thread does it. Each row is in each step from its second token on.
TEST_F(RunningAheadTest, RowsThatFollowAreInEachStep) {
  Start({1, 2, 3}, 40);
  Start({4, 5}, 40);
  ASSERT_TRUE(Launch());
  size_t ahead = 0;
  for (int steps = 1; !in_flight_.empty(); ++steps) {
    const bool follows = in_flight_.size() == 1 && scheduler_->MayPlanAhead();
    if (follows && Launch()) {
      ++ahead;
      EXPECT_EQ(last_rows_, 2u) << "step " << steps;
    }
    Commit();
    if (in_flight_.empty()) Launch();
  }
  EXPECT_EQ(engine_.fake().steps, 40u) << "each step gave both streams a token";
  EXPECT_EQ(ahead, 38u) << "all steps but that of the prompts and the one after it";
  EXPECT_EQ(engine_.promised_rows, 2 * ahead);
  EXPECT_EQ(clients_[0].tokens(), ExpectedTokens({1, 2, 3}, 0, 40));
  EXPECT_EQ(clients_[1].tokens(), ExpectedTokens({4, 5}, 0, 40));
}

// The request that waits for the slots would come a step later.
TEST_F(RunningAheadTest, NotWhereARequestWaitsForARowThatEnds) {
  for (uint32_t i = 0; i < kSessions; ++i) Start({i}, 3);
  EXPECT_FALSE(LaunchedIsFollowed());
  EXPECT_TRUE(LaunchedIsFollowed());
  Start({9}, 1);
  EXPECT_FALSE(LaunchedIsFollowed()) << "four streams end with this step, and the fifth waits";
}

// It would miss the step in flight and the one that is planned beside it.
TEST_F(RunningAheadTest, NotWhenARequestHasComeIn) {
  Start({1}, 10);
  EXPECT_FALSE(LaunchedIsFollowed());
  ASSERT_TRUE(Launch());
  EXPECT_TRUE(scheduler_->MayPlanAhead());
  Start({2}, 10);
  EXPECT_FALSE(scheduler_->MayPlanAhead());
  Commit();
}

TEST_F(RunningAheadTest, NotWhenARequestIsCancelled) {
  Start({1}, 10);
  EXPECT_FALSE(LaunchedIsFollowed());
  ASSERT_TRUE(Launch());
  scheduler_->Cancel(1);
  EXPECT_FALSE(scheduler_->MayPlanAhead());
  Commit();
}

TEST_F(RunningAheadTest, RowsThatEndDoNotHoldUpOthers) {
  Start({1}, 3);
  Start({2}, 10);
  EXPECT_FALSE(LaunchedIsFollowed());
  EXPECT_TRUE(LaunchedIsFollowed());
  ASSERT_TRUE(Launch());  // the last of the first stream
  EXPECT_TRUE(scheduler_->MayPlanAhead());
  ASSERT_TRUE(Launch());
  EXPECT_EQ(last_rows_, 1u);
  Commit();
  Commit();
}

// What a grammar takes after a token is not known before the token is.
TEST_F(RunningAheadTest, NotBehindARowWithAGrammar) {
  FakeTokenizer tokenizer;
  GrammarStore grammars(tokenizer);
  auto grammar = grammars.Get(GrammarKind::kRegex, "[a-z]*");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  engine_.fake().next_token = [](const StepRow&) { return 0u; };
  auto request = NewRequest({1}, 10);
  request->grammar = *grammar;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  Start({2}, 10);
  EXPECT_FALSE(LaunchedIsFollowed());
  EXPECT_FALSE(LaunchedIsFollowed());
}

// A fold takes a base, and the old one is in use until the step in flight has ended. Rows that do
// not find one would sit the step out.
TEST_F(RunningAheadTest, NotWhereMoreRowsFoldThanHaveBases) {
  for (uint32_t i = 0; i < kSessions; ++i) Start({i}, 40);
  EXPECT_FALSE(LaunchedIsFollowed());
  for (int token = 2; token < 15; ++token) EXPECT_TRUE(LaunchedIsFollowed()) << token;
  EXPECT_FALSE(LaunchedIsFollowed()) << "four rows fold behind this one, and one base is free";
  EXPECT_TRUE(LaunchedIsFollowed());
}

TEST_F(RunningAheadTest, WhereTheRowsThatFoldHaveBases) {
  Start({1}, 40);
  EXPECT_FALSE(LaunchedIsFollowed());
  for (int token = 2; token < 40; ++token) EXPECT_TRUE(LaunchedIsFollowed()) << token;
}

class RewrittenPagesTest : public RunningAheadTest {
 protected:
  RewrittenPagesTest()
      : RunningAheadTest(std::vector<PageKind>{{PageRule::kRewrittenFenwick, 4, 0}}) {}
};

// Such a fold cannot be taken back.
TEST_F(RewrittenPagesTest, NotWhereAFoldRewritesPages) {
  Start({1}, 40);
  EXPECT_FALSE(LaunchedIsFollowed());
  for (int token = 2; token < 15; ++token) EXPECT_TRUE(LaunchedIsFollowed()) << token;
  EXPECT_FALSE(LaunchedIsFollowed());
  EXPECT_TRUE(LaunchedIsFollowed());
}

// Drafters that always have something to offer.
class EagerDrafters final : public DrafterSource {
 public:
  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& /*completion*/) override {
    return std::make_unique<Eager>();
  }

 private:
  class Eager final : public Drafter {
   public:
    DraftSource source() const override { return DraftSource::kModel; }
    size_t Outlook(const TokenSequence& /*tokens*/, std::span<float> chances) override {
      std::fill(chances.begin(), chances.end(), 0.9f);
      return chances.size();
    }
    void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
      drafts = ExpectedTokens(tokens.Copy(), /*index=*/0, count);
    }
    double hit_rate() const override { return 1; }
  };
};

// They follow the token in flight. Whether there are some is not known before it is.
TEST_F(RunningAheadTest, NotWhereThereMayBeDrafts) {
  EagerDrafters drafters;
  SchedulerOptions options;
  options.drafts = {.source = &drafters};
  MakeScheduler(options);
  Start({1, 2}, 40);
  while (Launch()) {
    const bool last = clients_[0].tokens().size() == 39;
    EXPECT_TRUE(last || !scheduler_->MayPlanAhead());
    EXPECT_FALSE(Launch()) << "nor if it is planned ahead regardless";
    Commit();
  }
  EXPECT_EQ(clients_[0].tokens(), ExpectedTokens({1, 2}, 0, 40));
  scheduler_ = nullptr;
}

}  // namespace
}  // namespace rivulet
