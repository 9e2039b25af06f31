// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// When the scheduler asks drafters, when it lets them follow, and what drafts may cost a row, with
// steps that take what the test says. That drafts change no token: scheduler_bits_test.
#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "server/drafts/drafter.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

// Drafters of streams that are told apart by their seed.
class ScriptedSource final : public DrafterSource {
 public:
  double hit_rate = 0;
  uint64_t wrong_stream = UINT64_MAX;  // all its drafts are wrong, though it says otherwise
  size_t looks = 0;
  std::vector<uint64_t> followed;  // sizes of the sessions, one for each call

  std::unique_ptr<Drafter> MakeDrafter(const DraftedCompletion& completion) override {
    return std::make_unique<Scripted>(*this, completion.sampling->seed == wrong_stream);
  }

 private:
  class Scripted final : public Drafter {
   public:
    Scripted(ScriptedSource& source, bool wrong) : source_(source), wrong_(wrong) {}
    DraftSource source() const override { return DraftSource::kModel; }
    void Follow(const TokenSequence& tokens) override { source_.followed.push_back(tokens.size()); }
    size_t Outlook(const TokenSequence& /*tokens*/, std::span<float> chances) override {
      ++source_.looks;
      std::fill(chances.begin(), chances.end(), 0.9f);
      return chances.size();
    }
    void Draft(const TokenSequence& tokens, size_t count, std::vector<uint32_t>& drafts) override {
      for (uint32_t token : ExpectedTokens(tokens.Copy(), /*index=*/0, count)) {
        drafts.push_back(wrong_ ? (token + 1) % FakeEngine::kVocab : token);
      }
    }
    double hit_rate() const override { return source_.hit_rate; }

   private:
    ScriptedSource& source_;
    const bool wrong_;
  };
};

class SchedulerDraftsTest : public SchedulerFixture<> {
 protected:
  SchedulerDraftsTest() : SchedulerFixture(16) {}

  // Streams of one prompt token and `tokens` tokens, after the step of their prompts.
  void Start(size_t streams, uint32_t tokens) {
    SchedulerOptions options;
    options.drafts.source = &source_;
    MakeScheduler(options);
    for (size_t i = 0; i < streams; ++i) {
      Client& client = clients_.emplace_back(1);
      auto request = MakeRequest(client, {static_cast<uint32_t>(i)}, tokens);
      request->sampling.seed = i;
      request->stop.ignore_eos = true;
      ASSERT_TRUE(scheduler_->Submit(request).ok());
    }
    const auto waits = [](Client& client) { return client.tokens().empty(); };
    while (std::any_of(clients_.begin(), clients_.end(), waits)) Step();
    source_.looks = 0;
    source_.followed.clear();
  }

  // A second without drafts. Returns how long it took; 0: nothing runs.
  double Step() {
    const StepPlan& plan = scheduler_->Plan(now_);
    if (plan.empty()) return 0;
    const size_t drafts = plan.tokens.size() - plan.rows.size();
    const StepTicket ticket = engine_.Launch(plan);
    scheduler_->FollowDrafts();
    StepResult result = engine_.Await(ticket);
    const double seconds = drafts == 0 ? 1.0 : 1.2 + 0.005 * static_cast<double>(drafts);
    result.device_seconds = seconds;
    scheduler_->Commit(std::move(result), now_);
    ReadAll();
    return seconds;
  }

  ScriptedSource source_;
};

// Nothing was ever right, so the plan of a step does not wait for look-ups.
TEST_F(SchedulerDraftsTest, ManyRowsWithoutHopeAreFollowedWhileTheStepRuns) {
  Start(/*streams=*/8, /*tokens=*/100);
  for (int i = 0; i < 20; ++i) Step();
  EXPECT_EQ(source_.looks, 0u);
  ASSERT_EQ(source_.followed.size(), 8u * 20);
  const uint64_t first = source_.followed.front(), last = source_.followed.back();
  EXPECT_EQ(first, 2u) << "the prompt and what its step sampled";
  EXPECT_EQ(last, first + 19) << "what the step before has given, and not more";
}

TEST_F(SchedulerDraftsTest, FewRowsAreAlwaysLookedAt) {
  Start(/*streams=*/7, /*tokens=*/100);
  for (int i = 0; i < 20; ++i) Step();
  EXPECT_EQ(source_.looks, 7u * 20);
}

TEST_F(SchedulerDraftsTest, RowsThatAreOftenRightAreLookedAt) {
  source_.hit_rate = 0.9;
  Start(/*streams=*/8, /*tokens=*/100);
  for (int i = 0; i < 20; ++i) Step();
  EXPECT_GT(source_.looks, 8u * 10);
  EXPECT_GT(metrics_.accepted_draft_tokens[static_cast<size_t>(DraftSource::kModel)].value(), 100u);
}

// Its neighbours gain, and it has an account of its own, which pays for their drafts.
TEST_F(SchedulerDraftsTest, AStreamWhoseDraftsFailLosesThreePercentAtMost) {
  source_.hit_rate = 0.9;
  source_.wrong_stream = 3;
  const uint32_t tokens = 400;
  Start(/*streams=*/8, tokens);
  const size_t before = clients_[3].tokens().size();
  double seconds = 0;
  while (clients_[3].tokens().size() < tokens) seconds += Step();
  EXPECT_LE(seconds, 1.03 * static_cast<double>(tokens - before));
  EXPECT_GT(metrics_.accepted_draft_tokens[static_cast<size_t>(DraftSource::kModel)].value(), 30u)
      << "some drafts were tried";
}

TEST_F(SchedulerDraftsTest, FollowingBesideNoStepDoesNothing) {
  Start(/*streams=*/8, /*tokens=*/4);
  while (Step() > 0) continue;
  source_.followed.clear();
  scheduler_->FollowDrafts();
  EXPECT_TRUE(source_.followed.empty());
}

}  // namespace
}  // namespace rivulet
