// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Several completions on a session: what they leave, and what a failed one takes along.
// reuse_bits_test compares their bits.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/test_support.h"

namespace rivulet {
namespace {

std::vector<uint32_t> Joined(std::vector<uint32_t> a, const std::vector<uint32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class SessionChoicesTest : public testing::Test {
 protected:
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.keep_positions = 4;
    return options;
  }

  // A turn of the session "a" with three completions, run to its end.
  void RunTurn(std::vector<uint32_t> prompt, uint32_t max_tokens, bool keep) {
    client_ = std::make_unique<Client>(3);
    auto request = MakeRequest(*client_, std::move(prompt), max_tokens);
    request->session = *sessions_.LeaseForTurn("a");
    request->keep_choices = keep;
    id_ = request->id;
    ASSERT_TRUE(scheduler_.Submit(request).ok());
    while (Step()) client_->Read();
    client_->Read();
  }
  bool Step() {
    const StepPlan& plan = scheduler_.Plan(now_);
    if (plan.empty()) return false;
    scheduler_.Commit(engine_.Step(plan), now_);
    if (after_step) after_step();
    return true;
  }
  std::vector<uint32_t> TokensOf(const std::string& id) {
    return sessions_.LeaseForReading(id)->state()->tokens().Copy();
  }
  const std::string& fork(uint32_t index) const { return client_->received[index].fork_id; }

  const TimePoint now_ = TimePoint(std::chrono::seconds(1000));
  FakeEngine engine_{12};
  Dispatcher dispatcher_;
  Metrics metrics_;
  SessionTable sessions_{{.max_sessions = 3}, metrics_};
  Scheduler scheduler_{engine_, sessions_, dispatcher_, metrics_, Options()};
  std::unique_ptr<Client> client_;
  uint64_t id_ = 0;
  std::function<void()> after_step;
};

TEST_F(SessionChoicesTest, OnePrefillAndOneTailForEach) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  RunTurn(std::vector<uint32_t>(100, 6), 20, false);
  EXPECT_EQ(metrics_.prompt_tokens_computed.value(), 100u);
  EXPECT_EQ(sessions_.Get("a")->tokens, 120u);
  EXPECT_EQ(sessions_.List("", 10).size(), 1u);
  EXPECT_EQ(engine_.states().tails().used(), 1u) << "those of the others are free";
}

TEST_F(SessionChoicesTest, AFailedCompletionLeavesTheOthers) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  engine_.fail_row = [](const StepRow& row) {
    return row.spec.index == 1 ? absl::InternalError("broken row") : absl::OkStatus();
  };
  RunTurn({1, 2, 3}, 5, true);
  EXPECT_EQ(client_->end, absl::InternalError("broken row"));
  EXPECT_EQ(client_->received[1].reason, FinishReason::kError);
  EXPECT_EQ(fork(1), "");
  EXPECT_EQ(sessions_.Get("a")->tokens, 8u);
  EXPECT_EQ(sessions_.Get(fork(2))->tokens, 8u);
}

TEST_F(SessionChoicesTest, TheFirstTakesTheSessionAlong) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  engine_.fail_row = [](const StepRow& row) {
    const bool first = row.samples > 0 && row.spec.index == 0;
    return first ? absl::InternalError("broken row") : absl::OkStatus();
  };
  RunTurn({1, 2, 3}, 5, true);
  EXPECT_TRUE(absl::IsNotFound(sessions_.Get("a").status()));
  EXPECT_EQ(TokensOf(fork(2)), Joined({1, 2, 3}, ExpectedTokens({1, 2, 3}, 2, 5)));
}

TEST_F(SessionChoicesTest, OfACancelledCallOnlyTheSessionIsKept) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  after_step = [&] {
    client_->Read();
    if (client_->tokens(2).size() == 4) scheduler_.Cancel(id_);
  };
  RunTurn({1, 2, 3}, 50, true);
  EXPECT_EQ(client_->end->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(sessions_.Get("a")->tokens, 3 + client_->tokens(0).size());
  EXPECT_EQ(fork(1) + fork(2), "") << "the client would not learn them";
  EXPECT_EQ(sessions_.List("", 10).size(), 1u);
  EXPECT_EQ(engine_.states().tails().used(), 1u);
}

// What ended before was told.
TEST_F(SessionChoicesTest, AChoiceThatEndsBeforeTheCallIsCancelledIsKept) {
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  engine_.next_token = [](const StepRow& row) {
    return row.spec.index == 1 ? FakeTokenizer::kEos : 40;
  };
  SchedulerOptions options = Options();
  options.eos_ids = {FakeTokenizer::kEos};
  Scheduler scheduler(engine_, sessions_, dispatcher_, metrics_, options);
  Client client(3);
  auto request = MakeRequest(client, {1, 2, 3}, 50);
  request->session = *sessions_.LeaseForTurn("a");
  request->keep_choices = true;
  const uint64_t id = request->id;
  ASSERT_TRUE(scheduler.Submit(request).ok());
  for (int step = 0; step < 10; ++step) {
    scheduler.Commit(engine_.Step(scheduler.Plan(now_)), now_);
    client.Read();
  }
  scheduler.Cancel(id);
  EXPECT_TRUE(scheduler.Plan(now_).empty());
  client.Read();
  EXPECT_EQ(client.received[1].reason, FinishReason::kEos);
  EXPECT_TRUE(sessions_.Get(client.received[1].fork_id).ok());
  EXPECT_EQ(client.received[2].fork_id, "");
  EXPECT_EQ(sessions_.List("", 10).size(), 2u);
}

TEST_F(SessionChoicesTest, NoRoomForAnotherSession) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(sessions_.Create(id, "").ok());
  RunTurn({1, 2, 3}, 5, false);
  // Of the two choices, one finds the place of the session that was never used.
  RunTurn({4}, 5, true);
  EXPECT_EQ(client_->end, absl::OkStatus());
  EXPECT_NE(fork(1), "");
  EXPECT_NE(fork(2), "");
  RunTurn({5}, 5, true);
  EXPECT_EQ(client_->end, absl::OkStatus());
  EXPECT_EQ(fork(1) + fork(2), "") << "three sessions hold tokens";
  EXPECT_EQ(sessions_.Get("a")->tokens, 20u);
}

// Borders take what is free, and give as much of it back as any request needs.
TEST_F(SessionChoicesTest, BordersGoFirst) {
  SchedulerOptions options = Options();
  options.keep_borders = 50;
  Scheduler scheduler(engine_, sessions_, dispatcher_, metrics_, options);
  const auto run = [&](const std::string& id, std::vector<uint32_t> prompt, uint32_t tokens,
                       uint32_t completions = 1) {
    Client client(completions);
    auto request = MakeRequest(client, std::move(prompt), tokens);
    if (!id.empty()) request->session = *sessions_.LeaseForTurn(id);
    ASSERT_TRUE(scheduler.Submit(request).ok());
    for (;;) {
      const StepPlan& plan = scheduler.Plan(now_);
      if (plan.empty()) break;
      scheduler.Commit(engine_.Step(plan), now_);
      ASSERT_LE(engine_.states().bases().used(), engine_.capacity().base_slots);
      client.Read();
    }
    EXPECT_EQ(client.end, absl::OkStatus());
  };
  const uint32_t slots = engine_.capacity().base_slots;
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  run("a", {1, 2, 3}, 400);
  EXPECT_GE(sessions_.Get("a")->kept_borders, slots - 3) << "all that are free";
  EXPECT_EQ(sessions_.Get("a")->kept_bytes,
            sessions_.Get("a")->kept_borders * engine_.capacity().base_bytes);
  ASSERT_TRUE(sessions_.Create("b", "").ok());
  run("b", {4}, 100);
  EXPECT_EQ(sessions_.Get("b")->kept_borders, 5u) << "all, and those of the other make room";
  EXPECT_GT(sessions_.Get("a")->kept_borders, 0u) << "no more than that";
  EXPECT_LE(sessions_.Get("a")->kept_borders, slots - 3 - 5);
  EXPECT_EQ(sessions_.Get("a")->kept_positions.size(), 1u);
  run("", {5}, 1, 8);
  EXPECT_EQ(sessions_.Get("a")->kept_borders, 0u) << "the one that was used least recently";
  EXPECT_LT(sessions_.Get("b")->kept_borders, 5u);
  EXPECT_GT(metrics_.borders_dropped.value(), 0u);
}

// Also those of completions after the first, which may have ended.
TEST_F(SessionChoicesTest, BordersOfAnyRunningChoiceGoFirst) {
  SchedulerOptions options = Options();
  options.keep_borders = 50;
  Scheduler scheduler(engine_, sessions_, dispatcher_, metrics_, options);
  ASSERT_TRUE(sessions_.Create("a", "").ok());
  engine_.fail_row = [](const StepRow& row) {
    const bool first = row.samples > 0 && row.spec.index == 0;
    return first ? absl::InternalError("broken row") : absl::OkStatus();
  };
  Client choices(3), other(8);
  auto turn = MakeRequest(choices, {1, 2, 3}, 5000);
  turn->session = *sessions_.LeaseForTurn("a");
  turn->keep_choices = true;
  ASSERT_TRUE(scheduler.Submit(turn).ok());
  for (int step = 0; step < 400; ++step) {
    scheduler.Commit(engine_.Step(scheduler.Plan(now_)), now_);
    choices.Read();
  }
  EXPECT_GE(engine_.states().bases().used() + 2, engine_.capacity().base_slots);
  engine_.fail_row = nullptr;
  auto request = MakeRequest(other, {5}, 1);
  ASSERT_TRUE(scheduler.Submit(request).ok());
  EXPECT_EQ(scheduler.Plan(now_).rows.size(), 2u + 8u) << "it waits for the choices";
}

}  // namespace
}  // namespace rivulet
