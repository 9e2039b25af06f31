// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the model's own head may cost on a device, where it runs in the steps, and whether it is
// used where it pays: the scheduler, MtpSource and the engine's marks together, with steps that
// take what the test says.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "server/drafts/mtp_drafter.h"
#include "server/scheduler/head_policy.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

// Samples one token always, which its head guesses, or another.
class HeadEngine final : public FakeEngine {
 public:
  static constexpr uint32_t kToken = 7;

  explicit HeadEngine(uint32_t sessions) : FakeEngine(sessions) {
    next_token = [](const StepRow&) { return kToken; };
  }
  StepTicket Launch(const StepPlan& plan) override {
    HeadMarks& marks = states().head_marks();
    followed_ = plan.head_follows &&
                std::any_of(plan.rows.begin(), plan.rows.end(),
                            [&](const StepRow& row) { return marks.KnowsAllBefore(row.segment); });
    for (const StepRow& row : plan.rows) marks.NoteStep(row.segment, followed_);
    return FakeEngine::Launch(plan);
  }
  StepResult Await(StepTicket ticket) override {
    StepResult result = FakeEngine::Await(ticket);
    result.head_followed = followed_;
    return result;
  }
  bool guesses() const override { return true; }
  GuessResult Guess(const GuessPlan& plan) override {
    GuessResult result;
    for (const GuessRow& row : plan.rows) {
      const bool knows = states().head_marks().KnowsAllBefore(row.segment);
      rows_without += knows ? 0 : 1;
      result.guesses.emplace_back(knows ? row.count : 0, is_right ? kToken : kToken + 1);
    }
    result.seconds = 0.01;
    return result;
  }

  bool is_right = true;
  size_t rows_without = 0;  // that were asked for guesses and have none

 private:
  bool followed_ = false;
};

class SchedulerHeadTest : public SchedulerFixture<HeadEngine> {
 protected:
  SchedulerHeadTest() : SchedulerFixture(64) {
    SchedulerOptions options;
    options.drafts.source = source_.get();
    MakeScheduler(options);
  }

  // One step, of `streams` streams of `tokens_` tokens each where fewer run.
  void Step(size_t streams) {
    while (clients_.size() < streams) {
      Client& client = clients_.emplace_back(1);
      auto request = MakeRequest(client, {static_cast<uint32_t>(++requests_ % 50)}, tokens_);
      request->stop.ignore_eos = true;
      ASSERT_TRUE(scheduler_->Submit(request).ok());
    }
    const StepPlan& plan = scheduler_->Plan(now_);
    const size_t drafts = DraftsOf(plan);
    const StepTicket ticket = engine_.Launch(plan);
    scheduler_->FollowDrafts();
    StepResult result = engine_.Await(ticket);
    result.device_seconds = 1.0 + (result.head_followed ? 0.2 : 0);
    if (drafts > 0) result.device_seconds += 0.1 + draft_seconds_ * static_cast<double>(drafts);
    seconds_ += result.device_seconds + (drafts > 0 ? 0.01 : 0);
    followed_ += result.head_followed ? 1 : 0;
    scheduler_->Commit(std::move(result), now_);
    for (Client& client : clients_) {
      const size_t before = client.tokens().size();
      client.Read();
      const auto tokens = static_cast<double>(client.tokens().size() - before);
      given_ += streams == 0 ? 0 : tokens / static_cast<double>(streams);
    }
    std::erase_if(clients_, [](const Client& client) { return client.end.has_value(); });
  }
  void Steps(size_t count, size_t streams) {
    seconds_ = given_ = 0;
    followed_ = 0;
    for (size_t i = 0; i < count && !HasFatalFailure(); ++i) Step(streams);
  }
  static size_t DraftsOf(const StepPlan& plan) {
    size_t drafts = 0;
    for (const StepRow& row : plan.rows) drafts += row.samples > 1 ? row.samples - 1 : 0;
    return drafts;
  }
  uint64_t accepted() const {
    return metrics_.accepted_draft_tokens[static_cast<size_t>(DraftSource::kMtp)].value();
  }

  uint32_t tokens_ = 150;
  double draft_seconds_ = 0.005;
  double seconds_ = 0;  // of the steps
  double given_ = 0;    // steps without drafts that give as many tokens
  size_t followed_ = 0;
  uint32_t requests_ = 0;
  std::unique_ptr<MtpSource> source_ = *MtpSource::Make(engine_);
};

TEST_F(SchedulerHeadTest, AHeadThatIsNeverRightCostsThreePercentAtMost) {
  engine_.is_right = false;
  for (const size_t streams : {1, 8, 64}) {
    Steps(10000, streams);
    std::printf("%zu streams: %.4f\n", streams, seconds_ / given_);
    EXPECT_LE(seconds_, 1.03 * given_) << streams;
    EXPECT_GT(followed_, 0u) << "it is tried again";
  }
}

// They are asked once for each completion.
TEST_F(SchedulerHeadTest, RowsWithoutGuessesAreNotAskedAgain) {
  engine_.is_right = false;
  Steps(HeadPolicy::kTrial + 2000, 1);
  const uint32_t requests = requests_;
  engine_.rows_without = 0;
  Steps(1500, 1);
  EXPECT_EQ(followed_, 0u);
  EXPECT_LE(engine_.rows_without, requests_ - requests + 1);
}

TEST_F(SchedulerHeadTest, AHeadThatIsRightIsUsedInFullFromTheFirstSessionOn) {
  Steps(60, 1);
  EXPECT_GT(given_, 2.5 * 60);
  for (const size_t streams : {1, 8}) {
    Steps(3000, streams);
    EXPECT_EQ(followed_, 3000u);
    EXPECT_GT(given_, 2 * seconds_) << streams;
  }
}

// With 64 rows a draft costs more than the token that it gives.
TEST_F(SchedulerHeadTest, WhereTheLoadFallsNewSessionsAreDraftedForAgain) {
  draft_seconds_ = 0.05;
  Steps(2000, 64);
  EXPECT_LT(followed_, 1000u) << "it is left out";
  while (!clients_.empty()) Step(/*streams=*/0);
  const uint64_t before = accepted();
  Steps(HeadPolicy::kShortestPause + 300, 2);
  EXPECT_GT(accepted(), before + 300);
}

}  // namespace
}  // namespace rivulet
