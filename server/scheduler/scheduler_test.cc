// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The scheduler driven by hand, one step at a time.
#include "server/scheduler/scheduler.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

using std::chrono::seconds;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// Lets a test do something where the scheduler looks at the slots.
class HookedEngine : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;
  StatePool& states() const override {
    if (const auto hook = on_states) hook();
    return FakeEngine::states();
  }
  std::function<void()> on_states;
};

class SchedulerTest : public SchedulerFixture<HookedEngine> {
 protected:
  SchedulerTest() : SchedulerFixture(4) { MakeScheduler(Options()); }

  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.max_queue = 3;
    options.eos_ids = {FakeTokenizer::kEos};
    return options;
  }

  void UseTokenizer() {
    SchedulerOptions options = Options();
    options.tokenizer = &tokenizer_;
    MakeScheduler(options);
  }

  Client& SubmitTurn(const std::string& id, std::vector<uint32_t> prompt, uint32_t max_tokens) {
    Client& client = NewClient();
    auto request = MakeRequest(client, std::move(prompt), max_tokens);
    client.id = request->id;
    auto lease = sessions_.LeaseForTurn(id);
    EXPECT_TRUE(lease.ok()) << lease.status();
    request->session = *std::move(lease);
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return client;
  }

  Client& SubmitScore(const std::string& id, std::vector<uint32_t> prompt) {
    Client& client = NewClient();
    auto request = MakeRequest(client, std::move(prompt), 0);
    request->kind = RequestKind::kScore;
    request->score_prompt = true;
    auto lease = sessions_.LeaseForReading(id);
    EXPECT_TRUE(lease.ok()) << lease.status();
    request->session = *std::move(lease);
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return client;
  }

  // What an idle session holds.
  std::vector<uint32_t> Context(const std::string& id) {
    return sessions_.LeaseForReading(id)->state()->tokens().Copy();
  }

  // Requests that hold slots, and those that have not come to their first token.
  int64_t Running() const { return metrics_.requests_running.value(); }
  int64_t Queued() const { return metrics_.requests_waiting.value(); }

  void ExpectAllSlotsFree() {
    EXPECT_EQ(engine_.states().tails().used(), 0u);
    EXPECT_EQ(engine_.states().bases().used(), 0u);
    EXPECT_EQ(Running(), 0);
  }

  FakeTokenizer tokenizer_;
};

TEST_F(SchedulerTest, OneRequestFromPromptToEnd) {
  const std::vector<uint32_t> prompt = {1, 2, 3};
  Client& client = Submit(prompt, 5);
  RunAll();
  EXPECT_EQ(client.tokens(), ExpectedTokens(prompt, 0, 5));
  EXPECT_EQ(client.received[0].reason, FinishReason::kLength);
  EXPECT_EQ(client.received[0].usage.prompt_tokens, 3u);
  EXPECT_EQ(client.received[0].usage.completion_tokens, 5u);
  EXPECT_EQ(client.end, absl::OkStatus());
  EXPECT_EQ(engine_.steps, 5u) << "the prompt's step samples the first token";
  ExpectAllSlotsFree();
  EXPECT_EQ(metrics_.generation_tokens.value(), 5u);
  EXPECT_EQ(metrics_.prompt_tokens_computed.value(), 3u);
  EXPECT_EQ(metrics_.requests[static_cast<size_t>(Outcome::kLength)].value(), 1u);
}

TEST_F(SchedulerTest, StreamsShareEachStep) {
  Client& a = Submit({1, 2, 3}, 4);
  Client& b = Submit({4, 5}, 4);
  RunAll();
  EXPECT_EQ(engine_.steps, 4u);
  EXPECT_EQ(a.tokens(), ExpectedTokens({1, 2, 3}, 0, 4));
  EXPECT_EQ(b.tokens(), ExpectedTokens({4, 5}, 0, 4));
}

TEST_F(SchedulerTest, LongPromptRunsInPieces) {
  const std::vector<uint32_t> prompt(1300, 5);
  Client& client = Submit(prompt, 1);
  RunAll();
  EXPECT_EQ(engine_.steps, (1300 + 63) / 64) << "pieces of 64 while nothing is known of their cost";
  EXPECT_EQ(client.tokens(), ExpectedTokens(prompt, 0, 1));
  EXPECT_EQ(metrics_.folds.value(), 1300u / 16);
}

TEST_F(SchedulerTest, CompletionsForkOnePrefill) {
  const std::vector<uint32_t> prompt(100, 6);
  Client& client = Submit(prompt, 20, 3);
  RunAll();
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(client.tokens(i), ExpectedTokens(prompt, i, 20)) << i;
    EXPECT_EQ(client.received[i].usage.completion_tokens, 20u);
  }
  EXPECT_EQ(metrics_.prompt_tokens_computed.value(), 100u);
  EXPECT_EQ(client.end, absl::OkStatus());
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, CompletionsOfAPromptOfOneToken) {
  Client& client = Submit({9}, 3, 4);
  RunAll();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(client.tokens(i), ExpectedTokens({9}, i, 3)) << i;
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, MaxTokensZeroProcessesThePromptOnly) {
  Client& client = Submit({1, 2, 3}, 0);
  RunAll();
  EXPECT_TRUE(client.tokens().empty());
  EXPECT_EQ(client.received[0].reason, FinishReason::kLength);
  EXPECT_EQ(client.received[0].usage.prompt_tokens, 3u);
  EXPECT_EQ(client.end, absl::OkStatus());
}

TEST_F(SchedulerTest, ScoresArriveOnceForAllTokensButTheFirst) {
  Client& client = NewClient();
  auto request = MakeRequest(client, std::vector<uint32_t>(1000, 8), 0);
  request->kind = RequestKind::kScore;
  request->score_prompt = true;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  ASSERT_TRUE(Step());
  EXPECT_FALSE(client.outbox->Take().message.has_value()) << "not before all are there";
  RunAll();
  EXPECT_EQ(client.received[0].prompt_logprobs.size(), 999u);
  EXPECT_EQ(metrics_.requests[static_cast<size_t>(Outcome::kScored)].value(), 1u);
}

TEST_F(SchedulerTest, PromptLogprobsDoNotDependOnN) {
  for (const uint32_t completions : {1u, 3u}) {
    Client& client = NewClient(completions);
    auto request = MakeRequest(client, std::vector<uint32_t>(50, 8), 2);
    request->score_prompt = true;
    ASSERT_TRUE(scheduler_->Submit(request).ok());
    RunAll();
    EXPECT_EQ(client.received[0].prompt_logprobs.size(), 49u);
    EXPECT_EQ(client.received[0].tokens.size(), 2u);
  }
}

TEST_F(SchedulerTest, EosAndStopIdsEndTheRow) {
  engine_.next_token = [](const StepRow& row) -> uint32_t {
    return row.spec.position == 5 ? 40 : row.spec.position == 8 ? FakeTokenizer::kEos : 2;
  };
  Client& eos = Submit({1, 2, 3}, 50);
  Client& stop = NewClient();
  auto request = MakeRequest(stop, {1, 2, 3}, 50);
  request->stop.token_ids = {40};
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  Client& ignores = NewClient();
  request = MakeRequest(ignores, {1, 2, 3}, 50);
  request->stop.ignore_eos = true;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  RunAll();
  EXPECT_THAT(eos.tokens(), ElementsAre(2, 2, 40, 2, 2, FakeTokenizer::kEos));
  EXPECT_EQ(eos.received[0].reason, FinishReason::kEos);
  EXPECT_THAT(stop.tokens(), ElementsAre(2, 2, 40));
  EXPECT_EQ(stop.received[0].reason, FinishReason::kStop);
  EXPECT_EQ(ignores.tokens().size(), 50u);
}

TEST_F(SchedulerTest, MinTokensForbidsStopsAndTellsTheEngine) {
  std::vector<bool> forbidden;
  engine_.next_token = [&](const StepRow& row) {
    forbidden.push_back(row.spec.forbid_stops > 0);
    EXPECT_THAT(*row.spec.stop_ids, ElementsAre(FakeTokenizer::kEos));
    return FakeTokenizer::kEos;
  };
  Client& client = NewClient();
  auto request = MakeRequest(client, {1}, 50);
  request->stop.min_tokens = 2;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  RunAll();
  EXPECT_THAT(forbidden, ElementsAre(true, true, false));
  EXPECT_EQ(client.tokens().size(), 3u);
}

TEST_F(SchedulerTest, StopStringEndsTheRowInItsStep) {
  UseTokenizer();
  engine_.next_token = [](const StepRow& row) -> uint32_t { return row.spec.position - 1; };
  Client& client = NewClient();
  auto request = MakeRequest(client, {50}, 20);  // then "a", "b", ...
  request->stop.strings = {"de"};
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  RunAll();
  EXPECT_EQ(client.received[0].text, "abc");
  EXPECT_THAT(client.tokens(), ElementsAre(0, 1, 2, 3, 4)) << "the tokens of the stop string too";
  EXPECT_EQ(client.received[0].matched_stop, "de");
  EXPECT_EQ(client.received[0].reason, FinishReason::kStop);
  EXPECT_EQ(engine_.steps, 5u) << "no token is fed after the match";
}

TEST_F(SchedulerTest, TextIsWholeCharactersAndNothingHeldIsLost) {
  UseTokenizer();
  const uint32_t said[] = {0, FakeTokenizer::kFirstByte, FakeTokenizer::kSecondByte, 3};
  engine_.next_token = [&](const StepRow& row) { return said[row.spec.position - 1]; };
  Client& client = NewClient();
  auto request = MakeRequest(client, {50}, 4);
  request->stop.strings = {"dx"};
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  ASSERT_TRUE(Step() && Step());
  client.Read();
  EXPECT_EQ(client.received[0].text, "a");
  ASSERT_TRUE(Step());
  client.Read();
  EXPECT_EQ(client.received[0].text, "a\xC3\xA9");
  RunAll();
  EXPECT_EQ(client.received[0].text,
            "a\xC3\xA9"
            "d")
      << "the d that could have begun a stop";
}

TEST_F(SchedulerTest, CancelTakesEffectBeforeTheNextStep) {
  Client& cancelled = Submit({1, 2}, 100);
  const uint64_t id = clients_.back().id;
  Client& other = Submit({3, 4}, 5);
  ASSERT_TRUE(Step() && Step());
  scheduler_->Cancel(id);
  ASSERT_TRUE(Step());
  EXPECT_EQ(last_rows_, 1u);
  RunAll();
  EXPECT_EQ(cancelled.tokens().size(), 2u);
  EXPECT_EQ(cancelled.received[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(cancelled.received[0].usage.completion_tokens, 2u);
  EXPECT_EQ(cancelled.end->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(other.tokens().size(), 5u);
  scheduler_->Cancel(id);  // long gone
  RunAll();
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, CancelInTheQueueAndDuringThePrompt) {
  Client& running = Submit(std::vector<uint32_t>(5000, 1), 10, 4);
  const uint64_t running_id = clients_.back().id;
  Client& queued = Submit({1}, 10);
  const uint64_t queued_id = clients_.back().id;
  ASSERT_TRUE(Step());
  scheduler_->Cancel(running_id);
  scheduler_->Cancel(queued_id);
  RunAll();
  EXPECT_EQ(running.end->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(running.received[3].reason, FinishReason::kCancelled);
  EXPECT_EQ(queued.end->code(), absl::StatusCode::kCancelled);
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, QueueIsBoundedAndTheCallerKeepsTheRequest) {
  for (int i = 0; i < 3; ++i) Submit({1}, 2);
  Client& client = NewClient();
  auto request = MakeRequest(client, {1}, 2);
  const absl::Status refused = scheduler_->Submit(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--max-queue"));
  EXPECT_TRUE(refused.GetPayload(Scheduler::kRetryAfterPayload).has_value());
  ASSERT_NE(request, nullptr);
  RunAll();
  EXPECT_TRUE(scheduler_->Submit(request).ok());
  RunAll();
  EXPECT_EQ(client.tokens().size(), 2u);
}

TEST_F(SchedulerTest, RequestThatCanNeverFitIsRefusedAndNamesTheFlag) {
  Client& client = NewClient(5);
  auto request = MakeRequest(client, {1}, 2);
  const absl::Status refused = scheduler_->Submit(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--state-memory"));
}

TEST_F(SchedulerTest, ACancelAtTheDeadlineIsADeadline) {
  Client& late = NewClient();
  auto request = MakeRequest(late, {1}, 100);
  request->deadline = now_ + seconds(10);
  const uint64_t id = request->id;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  Client& early = Submit({2}, 100);
  ASSERT_TRUE(Step());
  scheduler_->Cancel(clients_.back().id);
  now_ += seconds(10) - std::chrono::milliseconds(20);
  scheduler_->Cancel(id);
  RunAll();
  EXPECT_EQ(late.end->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.received[0].reason, FinishReason::kDeadline);
  EXPECT_EQ(early.end->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(metrics_.requests[static_cast<size_t>(Outcome::kDeadline)].value(), 1u);
}

TEST_F(SchedulerTest, PromptsCountTowardsTheQueue) {
  Client& client = NewClient();
  for (int i = 0; i < 3; ++i) Submit(std::vector<uint32_t>(5000, 1), 1);
  ASSERT_TRUE(Step());
  EXPECT_EQ(Running(), 3) << "none waits for slots";
  EXPECT_EQ(Queued(), 3);
  auto request = MakeRequest(client, {1}, 1);
  EXPECT_EQ(scheduler_->Submit(request).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(scheduler_->CheckOpen().code(), absl::StatusCode::kResourceExhausted);
  RunAll();
  EXPECT_TRUE(scheduler_->CheckOpen().ok());
}

TEST_F(SchedulerTest, RefusedClientsAreToldToWaitAsLongAsTheQueueTakes) {
  for (int i = 0; i < 3; ++i) Submit(std::vector<uint32_t>(640, 1), 1);
  Client& client = NewClient();
  const auto wait_ms = [&] {
    auto request = MakeRequest(client, {1}, 1);
    const absl::Status refused = scheduler_->Submit(request);
    return std::stoi(std::string(*refused.GetPayload(Scheduler::kRetryAfterPayload)));
  };
  EXPECT_EQ(wait_ms(), Scheduler::kShortestRetry.count()) << "no pace is known yet";
  // One request ends every two seconds or so while others wait.
  for (int ended = 0; ended < 4;) {
    now_ += seconds(1);
    ASSERT_TRUE(Step());
    for (Client& each : clients_) each.Read();
    if (scheduler_->CheckOpen().ok()) {
      Submit(std::vector<uint32_t>(640, 1), 1);
      ++ended;
    }
  }
  EXPECT_GT(wait_ms(), 3000);
  EXPECT_LE(wait_ms(), Scheduler::kLongestRetry.count());
}

TEST_F(SchedulerTest, WhatDoesNotFitNowWaitsInOrder) {
  Client& first = Submit({1}, 3, 3);
  Client& large = Submit({2}, 2, 3);
  Client& small = Submit({3}, 2, 1);
  ASSERT_TRUE(Step());
  EXPECT_EQ(Running(), 1) << "the small one does not pass the large one";
  EXPECT_EQ(Queued(), 2);
  RunAll();
  for (Client* client : {&first, &large, &small}) EXPECT_EQ(client->end, absl::OkStatus());
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, SlowReaderParksItsRowOnly) {
  Client& slow = NewClient(1, 4);
  auto request = MakeRequest(slow, {1, 2}, 40);
  request->stop.ignore_eos = true;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  Client& fast = NewClient();
  request = MakeRequest(fast, {3, 4}, 40);
  request->stop.ignore_eos = true;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  while (Step()) fast.Read();
  EXPECT_EQ(fast.tokens().size(), 40u);
  EXPECT_EQ(fast.end, absl::OkStatus());
  EXPECT_FALSE(slow.end.has_value());
  EXPECT_EQ(Running(), 1);
  slow.Read();
  EXPECT_EQ(slow.tokens().size(), 4u) << "as many as its outbox holds";
  RunAll();
  EXPECT_EQ(slow.tokens(), ExpectedTokens({1, 2}, 0, 40)) << "and nothing was lost";
  EXPECT_EQ(slow.end, absl::OkStatus());
}

TEST_F(SchedulerTest, DeadlineWhileRunningWaitingAndParked) {
  Client& parked = NewClient(4, 4);
  auto request = MakeRequest(parked, {1, 2}, 400);
  request->deadline = now_ + seconds(5);
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  Client& late = NewClient();
  request = MakeRequest(late, {1, 2}, 400);
  request->deadline = now_ + seconds(3);
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  Client& patient = Submit({7}, 2);
  while (Step()) continue;
  EXPECT_EQ(Running(), 1);
  EXPECT_EQ(Queued(), 2);
  now_ += seconds(5);
  EXPECT_TRUE(Step()) << "the slots of the late ones go to the patient one at once";
  RunAll();
  EXPECT_EQ(parked.received[0].reason, FinishReason::kDeadline);
  EXPECT_EQ(parked.end->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.end->code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(patient.end, absl::OkStatus());
  EXPECT_EQ(metrics_.requests[static_cast<size_t>(Outcome::kDeadline)].value(), 2u);
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, FailedRowFailsAlone) {
  const std::vector<uint32_t> prompt(20, 3);
  engine_.fail_row = [](const StepRow& row) {
    return row.samples > 0 && row.spec.index == 1 && row.spec.position == 25
               ? absl::InternalError("broken row")
               : absl::OkStatus();
  };
  Client& client = Submit(prompt, 10, 3);
  Client& other = Submit({5}, 10);
  RunAll();
  EXPECT_EQ(client.received[1].reason, FinishReason::kError);
  EXPECT_EQ(client.received[1].tokens.size(), 5u);
  EXPECT_EQ(client.tokens(0), ExpectedTokens(prompt, 0, 10));
  EXPECT_EQ(client.tokens(2), ExpectedTokens(prompt, 2, 10));
  EXPECT_EQ(client.end, absl::InternalError("broken row"));
  EXPECT_EQ(other.end, absl::OkStatus());
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, FailedPromptEndsItsRequestOnly) {
  engine_.fail_row = [](const StepRow& row) {
    return row.segment.tokens == 7 ? absl::InternalError("broken prompt") : absl::OkStatus();
  };
  Client& broken = Submit(std::vector<uint32_t>(7, 1), 4);
  Client& other = Submit({5}, 10);
  RunAll();
  EXPECT_EQ(broken.end, absl::InternalError("broken prompt"));
  EXPECT_EQ(other.end, absl::OkStatus());
  ExpectAllSlotsFree();
}

TEST_F(SchedulerTest, LogprobsComeWithTheirTokens) {
  Client& client = NewClient();
  auto request = MakeRequest(client, {1}, 6);
  request->logprobs = 2;
  ASSERT_TRUE(scheduler_->Submit(request).ok());
  RunAll();
  EXPECT_EQ(client.received[0].logprobs.size(), 6u);
}

TEST_F(SchedulerTest, DrainRefusesNewWorkAndAbortEndsTheRest) {
  Client& running = Submit({1}, 1000, 4);
  Client& waiting = Submit({2}, 10);
  ASSERT_TRUE(Step());
  scheduler_->StopAdmission();
  Client& late = NewClient();
  auto request = MakeRequest(late, {1}, 2);
  EXPECT_EQ(scheduler_->Submit(request).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Step()) << "what was taken goes on";
  EXPECT_FALSE(scheduler_->WaitUntilIdle(Clock::now()));
  scheduler_->AbortAll(absl::UnavailableError("shutting down"));
  EXPECT_FALSE(Step());
  EXPECT_TRUE(scheduler_->WaitUntilIdle(Clock::now()));
  RunAll();
  EXPECT_EQ(running.end, absl::UnavailableError("shutting down"));
  EXPECT_EQ(running.received[2].reason, FinishReason::kCancelled);
  EXPECT_EQ(waiting.end, absl::UnavailableError("shutting down"));
  ExpectAllSlotsFree();
}

// ---- Turns of sessions.

TEST_F(SchedulerTest, ATurnWithoutPromptOrTokensLeavesTheSessionReadyForTheNext) {
  ASSERT_TRUE(sessions_.Create("s", "").ok());
  SubmitTurn("s", {1, 2, 3}, 2);
  RunAll();
  SubmitTurn("s", {}, 0);
  RunAll();
  Client& goes_on = SubmitTurn("s", {}, 4);
  RunAll();
  const std::vector<uint32_t> all = ExpectedTokens({1, 2, 3}, 0, 6);
  EXPECT_EQ(goes_on.tokens(), std::vector<uint32_t>(all.begin() + 2, all.end()));
  EXPECT_EQ(goes_on.received[0].usage.cached_tokens, 4u);
}

TEST_F(SchedulerTest, NoSessionIsDroppedForARequestThatWouldNotFitAnyway) {
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    SubmitTurn(id, {1}, 1);
  }
  RunAll();
  Submit({1}, 50);
  ASSERT_TRUE(Step());
  Submit({2}, 5, 4);  // four of four slots, of which one runs
  Submit({3}, 5);     // one is free, but it must not pass
  ASSERT_TRUE(Step());
  EXPECT_EQ(sessions_.List("", SIZE_MAX).size(), 2u);
  EXPECT_EQ(Queued(), 2);
  RunAll();
  EXPECT_EQ(sessions_.List("", SIZE_MAX).size(), 0u) << "now it got in";
  for (Client& client : clients_) EXPECT_EQ(client.end, absl::OkStatus());
}

TEST_F(SchedulerTest, ARequestThatHoldsItsSlotsPassesThoseThatWait) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  SubmitTurn("a", {1}, 1);
  RunAll();
  Submit({1}, 50, 3);
  Client& large = Submit({2}, 2, 4);
  ASSERT_TRUE(Step());
  Client& turn = SubmitTurn("a", {7}, 3);
  while (!turn.end.has_value()) {
    ASSERT_TRUE(Step());
    turn.Read();
  }
  EXPECT_FALSE(large.outbox->Take().end.has_value());
  EXPECT_EQ(Queued(), 1);
  RunAll();
}

TEST_F(SchedulerTest, AScoreOnASessionReadsWhatTheSessionHoldsAndLeavesItAlone) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Client& turn = SubmitTurn("a", {1, 2}, 3);
  RunAll();
  std::vector<uint32_t> context = {1, 2};
  for (const uint32_t token : turn.tokens()) context.push_back(token);
  Client& score = SubmitScore("a", {8, 9});
  RunAll();
  ASSERT_EQ(score.received[0].prompt_logprobs.size(), 2u);
  EXPECT_EQ(score.received[0].prompt_logprobs[0].chosen.logprob, ExpectedScore(context, 8));
  EXPECT_EQ(score.received[0].usage.cached_tokens, 4u);
  EXPECT_EQ(sessions_.Get("a")->tokens, 5u);
  EXPECT_EQ(engine_.states().tails().used(), 1u);
}

// The session is leased to readers at any moment; its turns begin all the same, and each reader
// sees the context of its time.
TEST_F(SchedulerTest, ClientsThatScoreASessionDoNotStarveItsTurns) {
  SchedulerOptions options = Options();
  options.max_queue = 100;
  MakeScheduler(options);
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  SubmitTurn("a", {1, 2}, 3);
  RunAll();
  for (uint32_t round = 0; round < 20; ++round) {
    std::vector<uint32_t> context = Context("a");
    Client* scores[8];
    for (Client*& score : scores) score = &SubmitScore("a", {8, 9});
    Client& turn = SubmitTurn("a", {round}, 2);
    EXPECT_TRUE(absl::IsAborted(sessions_.LeaseForReading("a").status()));
    RunAll();
    for (Client* score : scores) {
      ASSERT_EQ(score->end, absl::OkStatus());
      EXPECT_EQ(score->received[0].prompt_logprobs[0].chosen.logprob, ExpectedScore(context, 8));
    }
    EXPECT_EQ(turn.end, absl::OkStatus());
    context.push_back(round);
    EXPECT_EQ(turn.tokens(), ExpectedTokens(context, 0, 2));
  }
}

TEST_F(SchedulerTest, ATurnEndsAtMaxContextAndTheNextOneIsRefused) {
  SchedulerOptions options = Options();
  options.max_context = 10;
  MakeScheduler(options);
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  Client& turn = SubmitTurn("a", {1, 2}, 1000);
  RunAll();
  EXPECT_EQ(turn.end, absl::OkStatus());
  EXPECT_EQ(turn.tokens().size(), 8u);
  EXPECT_EQ(turn.received[0].reason, FinishReason::kLength);
  Client& client = NewClient();
  auto request = MakeRequest(client, {4}, 0);
  request->session = *sessions_.LeaseForTurn("a");
  const absl::Status status = scheduler_->Submit(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("11 tokens and --max-context allows 10"));
  request.reset();
  EXPECT_EQ(sessions_.Get("a")->tokens, 10u);
}

TEST_F(SchedulerTest, AFailedTurnTakesItsSessionAlong) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  engine_.fail_row = [](const StepRow& row) {
    return row.segment.position == 4 ? absl::InternalError("broken row") : absl::OkStatus();
  };
  Client& turn = SubmitTurn("a", {1, 2}, 9);
  RunAll();
  EXPECT_EQ(turn.end, absl::InternalError("broken row"));
  EXPECT_TRUE(absl::IsNotFound(sessions_.Get("a").status()));
  ExpectAllSlotsFree();
}

// Deleted on another thread just when slots are counted: the state holds its slot until it is
// destroyed on the engine thread.
TEST_F(SchedulerTest, AStateThatWasDeletedInTheMiddleOfAPlanStillCounts) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  SubmitTurn("a", {1}, 1);
  RunAll();
  Submit({2}, 3);
  Client& three = Submit({2}, 3, 3);
  // While the first is let in.
  engine_.on_states = [&] {
    engine_.on_states = nullptr;
    EXPECT_TRUE(sessions_.Delete("a").ok());
  };
  RunAll();
  EXPECT_EQ(three.end, absl::OkStatus());
  for (const Received& received : three.received) EXPECT_EQ(received.tokens.size(), 3u);
}

// New prompts of one chunk come all the time, and the budget is one chunk: the long prompt must
// have its turn all the same.
TEST_F(SchedulerTest, AStreamOfNewPromptsDoesNotStarveAnOldOne) {
  SchedulerOptions options = Options();
  options.limits.max_prompt_tokens = 16;
  options.max_queue = 10;
  MakeScheduler(options);
  Client& old = Submit(std::vector<uint32_t>(160, 1), 1);
  ASSERT_TRUE(Step());
  for (int i = 0; i < 100 && !old.end.has_value(); ++i) {
    for (int64_t live = Running(); live < 4; ++live) {
      Submit(std::vector<uint32_t>(16, 2), 1);
    }
    ASSERT_TRUE(Step());
    for (Client& client : clients_) client.Read();
  }
  EXPECT_EQ(old.end, absl::OkStatus());
  RunAll();
}

}  // namespace
}  // namespace rivulet
