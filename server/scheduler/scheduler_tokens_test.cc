// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How many tokens all sessions may hold together, which of them penalties count, and rows that
// sample several tokens.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler_fixture.h"

namespace rivulet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// Samples 40, 41 and so on, several after each row.
class SamplesEngine : public FakeEngine {
 public:
  using FakeEngine::FakeEngine;
  StepResult Await(StepTicket ticket) override {
    StepResult result = FakeEngine::Await(ticket);
    for (RowResult& row : result.rows) {
      row.samples.resize(samples);
      for (uint32_t i = 0; i < samples; ++i) row.samples[i].token = 40 + i;
    }
    return result;
  }
  uint32_t samples = 1;
};

class SchedulerTokensTest : public SchedulerFixture<> {
 protected:
  SchedulerTokensTest() : SchedulerFixture(4) {
    SchedulerOptions options;
    options.max_session_tokens = 30;
    MakeScheduler(options);
  }

  Client& SubmitTurn(const std::string& id, std::vector<uint32_t> prompt, uint32_t max_tokens,
                     const SamplingParams& sampling = {}) {
    Client& client = NewClient();
    auto request = MakeRequest(client, std::move(prompt), max_tokens);
    request->sampling = sampling;
    request->session = *sessions_.LeaseForTurn(id);
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    return client;
  }
};

struct Notes : SessionNotes {
  size_t bytes() const override { return 40; }
};

// What sessions remember of their messages makes them go as their tokens do.
TEST_F(SchedulerTokensTest, NotesOfSessionsCountAsTokens) {
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    Client& client = NewClient();
    auto request = MakeRequest(client, std::vector<uint32_t>(5, 1), 2);
    request->session = *sessions_.LeaseForTurn(id);
    request->notes = std::make_shared<Notes>();
    EXPECT_TRUE(scheduler_->Submit(request).ok());
    RunAll();
    EXPECT_EQ(sessions_.tokens(), 17u) << "the first one went: 7 tokens and 10 for notes";
  }
  EXPECT_FALSE(sessions_.Get("a").ok());
  Client& client = NewClient();
  auto request = MakeRequest(client, std::vector<uint32_t>(15, 1), 1);
  request->session = *sessions_.LeaseForTurn("b");
  request->notes = std::make_shared<Notes>();
  EXPECT_EQ(scheduler_->Submit(request).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(SchedulerTokensTest, TokensOfAllSessionsAreBoundedAndIdleOnesMakeRoom) {
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(sessions_.Create(id, "").ok());
    SubmitTurn(id, std::vector<uint32_t>(8, 1), 2);
    RunAll();
  }
  EXPECT_EQ(sessions_.tokens(), 20u);
  EXPECT_EQ(sessions_.idle_tokens(), 20u);
  // As many as fit beside both.
  Client& fits = Submit(std::vector<uint32_t>(5, 2), 1, 2);
  RunAll();
  EXPECT_EQ(fits.end, absl::OkStatus());
  EXPECT_TRUE(sessions_.Get("a").ok());
  // One more: the session used least recently goes.
  Client& more = Submit(std::vector<uint32_t>(11, 2), 1);
  RunAll();
  EXPECT_EQ(more.end, absl::OkStatus());
  const absl::Status gone = sessions_.Get("a").status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("--max-session-tokens"));
  EXPECT_EQ(sessions_.tokens(), 10u);
  // What never fits is refused at once, and a turn with its session's tokens.
  Client& client = NewClient();
  auto request = MakeRequest(client, std::vector<uint32_t>(21, 3), 1);
  request->session = *sessions_.LeaseForTurn("b");
  absl::Status status = scheduler_->Submit(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("31 tokens and --max-session-tokens"));
  request.reset();
  EXPECT_EQ(sessions_.Get("b")->tokens, 10u);
}

// Nothing is dropped for a request that would have to wait even then; it runs when there is room.
TEST_F(SchedulerTokensTest, ARequestWaitsForTheTokensOfThoseThatRun) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  SubmitTurn("a", {1, 2}, 2);
  RunAll();
  Client& first = Submit(std::vector<uint32_t>(20, 1), 6);
  Step();
  Client& second = Submit(std::vector<uint32_t>(12, 2), 2);
  Step();
  EXPECT_TRUE(second.tokens().empty());
  EXPECT_TRUE(sessions_.Get("a").ok());
  RunAll();
  EXPECT_EQ(first.end, absl::OkStatus());
  EXPECT_EQ(second.end, absl::OkStatus());
  EXPECT_TRUE(sessions_.Get("a").ok());
}

// StepRow::samples: an engine that guesses tokens ahead samples after several of a row's tokens.
TEST_F(SchedulerTokensTest, ARowWithSeveralSamplesStopsAtTheOneThatEndsIt) {
  SamplesEngine engine(4);
  Scheduler scheduler(engine, sessions_, dispatcher_, metrics_, {});
  const auto run = [&](uint32_t samples, uint32_t max_tokens, uint32_t stop_id) -> Client& {
    engine.samples = samples;
    Client& client = NewClient();
    auto request = MakeRequest(client, {1, 2, 3}, max_tokens);
    request->stop.token_ids = {stop_id};
    request->stop.ignore_eos = true;
    request->logprobs = 1;
    EXPECT_TRUE(scheduler.Submit(request).ok());
    const StepPlan& plan = scheduler.Plan(now_);
    scheduler.Commit(engine.Step(plan), now_);
    client.Read();
    return client;
  };
  // All of them are sent, and the request goes on.
  Client& goes_on = run(3, 9, 99);
  EXPECT_THAT(goes_on.tokens(), ElementsAre(40, 41, 42));
  EXPECT_EQ(goes_on.received[0].logprobs.size(), 3u);
  EXPECT_FALSE(goes_on.end.has_value());
  scheduler.AbortAll(absl::UnavailableError("enough"));
  scheduler.Plan(now_);
  // max_tokens, or a stop id, in the middle.
  for (const auto& [max_tokens, stop_id] : {std::pair(2u, 99u), std::pair(9u, 41u)}) {
    const uint64_t before = metrics_.generation_tokens.value();
    Client& ends = run(4, max_tokens, stop_id);
    EXPECT_THAT(ends.tokens(), ElementsAre(40, 41));
    EXPECT_EQ(ends.received[0].logprobs.size(), 2u);
    EXPECT_EQ(ends.received[0].usage.completion_tokens, 2u);
    EXPECT_EQ(ends.end, absl::OkStatus());
    EXPECT_EQ(metrics_.generation_tokens.value(), before + 2);
  }
  EXPECT_EQ(engine.states().tails().used(), 0u);
}

TEST_F(SchedulerTokensTest, PenaltiesCountTheTurnsOwnTokensOrAllOfTheSession) {
  ASSERT_TRUE(sessions_.Create("s", "").ok());
  std::vector<std::pair<uint32_t, uint32_t>> counts;  // of token 5: this turn's, the session's
  engine_.next_token = [&](const StepRow& row) -> uint32_t {
    counts.emplace_back(row.spec.turn_counts->count(5), row.spec.session_counts->count(5));
    return 5;
  };
  SamplingParams penalties;
  penalties.repetition_penalty = 1.1f;
  penalties.presence_penalty = 0.5f;
  SubmitTurn("s", {5, 1}, 2, penalties);
  RunAll();
  SubmitTurn("s", {5, 5}, 2, penalties);
  RunAll();
  EXPECT_THAT(counts, ElementsAre(Pair(0, 1), Pair(1, 2), Pair(0, 5), Pair(1, 6)));
}

TEST_F(SchedulerTokensTest, PenaltiesCountTheTokensOfTurnsWithoutPenalties) {
  ASSERT_TRUE(sessions_.Create("s", "").ok());
  std::vector<uint32_t> counts;  // of token 5, where they are asked for
  engine_.next_token = [&](const StepRow& row) -> uint32_t {
    EXPECT_EQ(row.spec.turn_counts, nullptr);
    if (row.spec.session_counts != nullptr) counts.push_back(row.spec.session_counts->count(5));
    return 5;
  };
  SubmitTurn("s", {5, 1}, 3);
  RunAll();
  EXPECT_THAT(counts, ElementsAre());
  SamplingParams penalty;
  penalty.repetition_penalty = 1.1f;
  SubmitTurn("s", {5}, 2, penalty);
  RunAll();
  EXPECT_THAT(counts, ElementsAre(5, 6));
}

}  // namespace
}  // namespace rivulet
