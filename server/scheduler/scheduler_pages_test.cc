// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the scheduler lets in where states have pages.
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

// Eight pages: one session of 128 tokens fits, regardless of the slots.
class SchedulerPagesTest : public SchedulerFixture<> {
 protected:
  SchedulerPagesTest() : SchedulerPagesTest(4, {PageRule::kAppended, 0, 0}, 40) {}
  SchedulerPagesTest(uint32_t sessions, const PageKind& kind, uint64_t context)
      : SchedulerFixture(sessions, std::vector<PageKind>{kind}, context) {
    MakeScheduler();
  }

  Client& Submit(size_t prompt, uint32_t max_tokens, uint32_t completions = 1) {
    Client& client = NewClient(completions);
    auto request = MakeRequest(client, std::vector<uint32_t>(prompt, 5), max_tokens);
    request->stop.ignore_eos = true;
    submitted_ = scheduler_->Submit(request);
    return client;
  }

  // On a session.
  Client& Submit(SessionLease lease, size_t prompt, uint32_t max_tokens) {
    Client& client = NewClient();
    auto request = MakeRequest(client, std::vector<uint32_t>(prompt, 5), max_tokens);
    request->kind = lease.exclusive() ? RequestKind::kGenerate : RequestKind::kScore;
    request->score_prompt = !lease.exclusive();
    request->stop.ignore_eos = true;
    request->session = std::move(lease);
    submitted_ = scheduler_->Submit(request);
    return client;
  }

  // What it ends with, within 300 steps.
  std::optional<absl::Status> End(Client& client) {
    for (int i = 0; i < 300 && !(client.Read(), client.end.has_value()); ++i) Step();
    return client.end;
  }

  absl::Status submitted_;
};

TEST_F(SchedulerPagesTest, ARequestWaitsUntilAllItsPagesAreThere) {
  Client& first = Submit(20, 60);   // five pages
  Client& second = Submit(20, 60);  // five more: three are left
  Submit(4, 10);                    // none, but it stands behind the second
  Step();
  EXPECT_EQ(metrics_.requests_running.value(), 1);
  EXPECT_EQ(metrics_.requests_waiting.value(), 2) << "the first has its first token";
  for (int i = 0; i < 300 && !(first.Read(), first.end.has_value()); ++i) Step();
  EXPECT_EQ(first.tokens().size(), 60u);
  for (int i = 0; i < 300 && !(second.Read(), second.end.has_value()); ++i) Step();
  EXPECT_EQ(second.end, absl::OkStatus());
  EXPECT_EQ(second.tokens().size(), 60u);
  EXPECT_EQ(engine_.states().pages(0).used(), 0u);
}

TEST_F(SchedulerPagesTest, SeveralCompletionsCountTheirPromptsPagesOnceMore) {
  Submit(32, 16, 1);
  EXPECT_TRUE(submitted_.ok());
  Submit(32, 0, 3);  // 4 times 2 pages
  EXPECT_TRUE(submitted_.ok());
  Submit(32, 16, 3);  // 4 times 3 pages
  EXPECT_EQ(submitted_.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SchedulerPagesTest, WhatCanNeverFitIsRefusedAndSaysWhatToDo) {
  Submit(20, 1000);
  EXPECT_EQ(submitted_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(submitted_.message()),
              testing::AllOf(testing::HasSubstr("1020 tokens"), testing::HasSubstr("max_tokens"),
                             testing::HasSubstr("--state-memory")));
}

// 96 of 128 tokens are in it, so nothing else would fit beside a second copy.
TEST_F(SchedulerPagesTest, AScoreOnASessionSharesItsPages) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  EXPECT_EQ(End(Submit(*sessions_.LeaseForTurn("a"), 97, 0)), absl::OkStatus());
  EXPECT_EQ(engine_.states().pages(0).used(), 6u);
  Client& score = Submit(*sessions_.LeaseForReading("a"), 30, 0);
  EXPECT_EQ(End(score), absl::OkStatus());
  EXPECT_EQ(score.received[0].prompt_logprobs.size(), 30u);
  EXPECT_EQ(engine_.states().pages(0).used(), 6u);
}

// Pages for one session, which may go on for as long as it likes.
class SchedulerWindowTest : public SchedulerPagesTest {
 protected:
  SchedulerWindowTest() : SchedulerPagesTest(1, {PageRule::kAppended, 0, 32}, 4096) {}
};

// The turn waits for the reader, which needs a slot that there is not: the reader is refused.
TEST_F(SchedulerWindowTest, AScoreThatCannotGetASlotDoesNotHoldUpTheTurnBehindIt) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  EXPECT_EQ(End(Submit(*sessions_.LeaseForTurn("a"), 10, 3)), absl::OkStatus());
  SessionLease reader = *sessions_.LeaseForReading("a");
  Client& turn = Submit(*sessions_.LeaseForTurn("a"), 10, 3);
  Step();
  EXPECT_EQ(metrics_.requests_waiting.value(), 1);
  Client& score = Submit(std::move(reader), 10, 0);
  EXPECT_EQ(End(score)->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(End(turn), absl::OkStatus());
  EXPECT_EQ(turn.tokens().size(), 3u);
}

TEST_F(SchedulerWindowTest, WhatASessionHoldsOfItsWindowCountsTowardsItsNextTurn) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  for (int turn = 0; turn < 4; ++turn) {
    EXPECT_EQ(End(Submit(*sessions_.LeaseForTurn("a"), 1200, 40)), absl::OkStatus());
    EXPECT_LE(engine_.states().pages(0).used(), 4u);
  }
}

}  // namespace
}  // namespace rivulet
