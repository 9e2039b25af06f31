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

  RunningAheadTest() : RunningAheadTest(kSessions, {}) {}
  RunningAheadTest(uint32_t sessions, const std::vector<PageKind>& pages)
      : SchedulerFixture(sessions, pages) {
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
    const bool follows = scheduler_->AllFollow();
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
    ASSERT_TRUE(Launch());
    const bool has_prompt = last_rows_ == 2 && !began;
    EXPECT_EQ(scheduler_->AllFollow(), !has_prompt);
    Commit();
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
    const bool follows = in_flight_.size() == 1 && scheduler_->AllFollow();
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

TEST_F(RunningAheadTest, RowsThatEndDoNotHoldUpOthers) {
  Start({1}, 3);
  Start({2}, 10);
  EXPECT_FALSE(LaunchedIsFollowed());
  EXPECT_TRUE(LaunchedIsFollowed());
  ASSERT_TRUE(Launch());  // the last of the first stream
  EXPECT_TRUE(scheduler_->AllFollow());
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

class ManySessionsTest : public RunningAheadTest {
 protected:
  ManySessionsTest() : RunningAheadTest(24, {}) {}
};

// The bases of the sessions that do not run are the prefix cache's, until rows that fold need some.
TEST_F(ManySessionsTest, ThePrefixCacheGivesUpBasesForRowsThatFold) {
  SchedulerOptions options;
  options.prefix_cache.bytes = uint64_t{1} << 40;
  MakeScheduler(options);
  for (uint32_t i = 0; i < 40; ++i) {
    Start(std::vector<uint32_t>(33, i), 1);
    while (Launch()) Commit();
  }
  const SlotPool& bases = engine().states().bases();
  ASSERT_EQ(bases.used(), engine().capacity().base_slots) << "the cache has them all";
  // Rows at different places: mostly one or two fold in a step. Their prompts leave no states.
  for (uint32_t i = 0; i < 16; ++i) Start(std::vector<uint32_t>(1 + i, 50 + i), 60);
  int decodes = 0, ahead = 0;
  while (Launch()) {
    if (last_rows_ == 16 && clients_.back().tokens().size() > 1) {
      ++decodes;
      if (scheduler_->AllFollow()) ++ahead;
    }
    Commit();
  }
  EXPECT_GT(decodes, 20);
  EXPECT_GE(ahead, decodes * 9 / 10);
}

class RewrittenPagesTest : public RunningAheadTest {
 protected:
  RewrittenPagesTest() : RunningAheadTest(kSessions, {{PageRule::kRewrittenFenwick, 4, 0}}) {}
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

TEST_F(RunningAheadTest, NotBehindDraftsNorWhereThereMayBeSome) {
  EagerDrafters drafters;
  SchedulerOptions options;
  options.drafts = {.source = &drafters, .always = true};
  MakeScheduler(options);
  Start({1, 2}, 40);
  EXPECT_FALSE(LaunchedIsFollowed());
  while (Launch()) {
    EXPECT_FALSE(scheduler_->AllFollow() && clients_[0].tokens().size() < 38);
    Commit();
  }
  EXPECT_EQ(clients_[0].tokens(), ExpectedTokens({1, 2}, 0, 40));
  EXPECT_LT(engine_.fake().steps, 30u) << "there were drafts";
  scheduler_ = nullptr;
}

}  // namespace
}  // namespace rivulet
