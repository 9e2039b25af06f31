// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The service Sessions, and session_id in Generate and Score.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/service_fixture.h"
#include "server/service/generation_call.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

class SessionsServiceTest : public ServiceTest {
 protected:
  v1::ListSessionsResponse List(uint32_t size, const std::string& token = "") {
    grpc::ClientContext context;
    v1::ListSessionsRequest request;
    request.set_page_size(size);
    request.set_page_token(token);
    v1::ListSessionsResponse response;
    EXPECT_TRUE(sessions_stub_->ListSessions(&context, request, &response).ok());
    return response;
  }
  grpc::Status Update(const std::string& id, const char* name, v1::Session* session) {
    grpc::ClientContext context;
    v1::UpdateSessionRequest request;
    request.set_id(id);
    if (name != nullptr) request.set_name(name);
    return sessions_stub_->UpdateSession(&context, request, session);
  }
  grpc::Status Fork(const std::string& id, const std::string& new_id,
                    std::optional<uint64_t> position, v1::Session* session) {
    grpc::ClientContext context;
    v1::ForkSessionRequest request;
    request.set_id(id);
    request.set_new_id(new_id);
    request.set_name("a fork");
    if (position.has_value()) request.set_position(*position);
    return sessions_stub_->ForkSession(&context, request, session);
  }
  grpc::Status Rewind(const std::string& id, uint64_t position, v1::Session* session) {
    grpc::ClientContext context;
    v1::RewindSessionRequest request;
    request.set_id(id);
    request.set_position(position);
    return sessions_stub_->RewindSession(&context, request, session);
  }
  static std::vector<uint32_t> Ids(uint32_t count) {
    std::vector<uint32_t> ids(count);
    for (uint32_t i = 0; i < count; ++i) ids[i] = 3 + i;
    return ids;
  }
  v1::GenerateRequest Turn(const std::string& id, uint32_t prompt, uint32_t max_tokens) {
    v1::GenerateRequest request;
    for (const uint32_t token : Ids(prompt)) request.mutable_token_ids()->add_ids(token);
    request.set_session_id(id);
    request.set_max_tokens(max_tokens);
    request.mutable_stop()->set_ignore_eos(true);
    return request;
  }
  grpc::Status Score(const v1::ScoreRequest& request, v1::ScoreResponse* response) {
    grpc::ClientContext context;
    return stub_->Score(&context, request, response);
  }
};

TEST_F(SessionsServiceTest, CreateGetDelete) {
  v1::Session session;
  ASSERT_TRUE(Create("one", "the first", &session).ok());
  EXPECT_EQ(session.id(), "one");
  EXPECT_EQ(session.name(), "the first");
  EXPECT_EQ(session.position(), 0u);
  EXPECT_EQ(session.state_bytes(), 0u);
  EXPECT_EQ(session.tier(), "");
  EXPECT_FALSE(session.busy());
  EXPECT_GT(session.created_unix_ms(), 1'700'000'000'000);
  ASSERT_TRUE(Get("one", &session).ok());
  EXPECT_EQ(session.name(), "the first");
  EXPECT_EQ(Create("one").error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Create("no spaces").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  ASSERT_TRUE(Delete("one").ok());
  EXPECT_THAT(Get("one", &session).error_message(), HasSubstr("deleted"));
  EXPECT_EQ(Delete("one").error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(Create("", "", &session).ok());
  EXPECT_FALSE(session.id().empty());
}

TEST_F(SessionsServiceTest, ListGoesPageByPage) {
  for (int i = 0; i < 25; ++i) ASSERT_TRUE(Create("s" + std::to_string(100 + i)).ok());
  v1::ListSessionsResponse page = List(10);
  ASSERT_EQ(page.sessions_size(), 10);
  EXPECT_EQ(page.sessions(0).id(), "s100");
  // A deleted border and a new one before it move nothing.
  ASSERT_TRUE(Delete("s109").ok());
  ASSERT_TRUE(Create("s1005").ok());
  page = List(10, page.next_page_token());
  ASSERT_EQ(page.sessions_size(), 10);
  EXPECT_EQ(page.sessions(0).id(), "s110");
  page = List(10, page.next_page_token());
  EXPECT_EQ(page.sessions_size(), 5);
  EXPECT_EQ(page.next_page_token(), "");
  EXPECT_EQ(List(0).sessions_size(), 25);
  EXPECT_EQ(List(25).next_page_token(), "") << "a full last page is the last";
  grpc::ClientContext context;
  v1::ListSessionsRequest request;
  request.set_page_size(1001);
  v1::ListSessionsResponse response;
  EXPECT_THAT(sessions_stub_->ListSessions(&context, request, &response).error_message(),
              HasSubstr("1000"));
}

TEST_F(SessionsServiceTest, UpdateRenames) {
  ASSERT_TRUE(Create("one", "before").ok());
  v1::Session session;
  ASSERT_TRUE(Update("one", "after", &session).ok());
  EXPECT_EQ(session.id(), "one");
  EXPECT_EQ(session.name(), "after");
  ASSERT_TRUE(Update("one", nullptr, &session).ok());
  EXPECT_EQ(session.name(), "after") << "a name that is not set stays";
  const std::string long_name(257, 'n');
  const grpc::Status refused = Update("one", long_name.c_str(), &session);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("257 bytes: at most 256"));
  ASSERT_TRUE(Get("one", &session).ok());
  EXPECT_EQ(session.name(), "after");
  ASSERT_TRUE(Update("one", "", &session).ok());
  EXPECT_EQ(session.name(), "");
  for (const char* name : {"any", static_cast<const char*>(nullptr)}) {
    EXPECT_EQ(Update("unknown", name, &session).error_code(), grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(SessionsServiceTest, ForksAndRewinds) {
  ASSERT_TRUE(Create("one").ok());
  v1::Session session;
  for (int turn = 0; turn < 3; ++turn) {
    const Stream stream = Generate(Turn("one", 20, 5));
    ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  }
  ASSERT_TRUE(Get("one", &session).ok());
  EXPECT_EQ(session.position(), 75u);
  EXPECT_THAT(session.kept_positions(), testing::ElementsAre(25, 50)) << "two are kept";
  EXPECT_GT(session.kept_bytes(), 0u);
  EXPECT_EQ(session.forked_from(), "");

  ASSERT_TRUE(Fork("one", "two", std::nullopt, &session).ok());
  EXPECT_EQ(session.id(), "two");
  EXPECT_EQ(session.name(), "a fork");
  EXPECT_EQ(session.position(), 75u);
  EXPECT_EQ(session.forked_from(), "one");
  EXPECT_EQ(session.forked_at(), 75u);
  ASSERT_TRUE(Fork("one", "", 50, &session).ok());
  EXPECT_EQ(session.position(), 50u);
  EXPECT_EQ(session.forked_at(), 50u);
  EXPECT_THAT(session.kept_positions(), testing::ElementsAre(25, 50));

  ASSERT_TRUE(Rewind("one", 50, &session).ok());
  EXPECT_EQ(session.position(), 50u);
  EXPECT_THAT(session.kept_positions(), testing::ElementsAre(25, 50));
  ASSERT_TRUE(Rewind("one", 33, &session).ok()) << "between two kept ones";
  EXPECT_THAT(session.kept_positions(), testing::ElementsAre(25));
  const Stream stream = Generate(Turn("one", 1, 5));
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  EXPECT_EQ(stream.usage().cached_tokens(), 16u) << "what the border before 25 holds";
}

TEST_F(SessionsServiceTest, BackAtItsBeginningASessionHasNoState) {
  ASSERT_TRUE(Create("one").ok());
  ASSERT_TRUE(Generate(Turn("one", 20, 5)).status.ok());
  v1::Session session;
  for (const bool fork : {true, false}) {
    ASSERT_TRUE((fork ? Fork("one", "", 0, &session) : Rewind("one", 0, &session)).ok());
    EXPECT_EQ(session.position(), 0u);
    EXPECT_EQ(session.state_bytes(), 0u);
    EXPECT_EQ(session.tier(), "") << "where its state is";
  }
}

TEST_F(SessionsServiceTest, ForksAndRewindsThatCannotBe) {
  v1::Session session;
  EXPECT_EQ(Fork("none", "", std::nullopt, &session).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Rewind("none", 0, &session).error_code(), grpc::StatusCode::NOT_FOUND);
  ASSERT_TRUE(Create("one").ok());
  EXPECT_TRUE(Fork("one", "empty", std::nullopt, &session).ok());
  EXPECT_EQ(session.position(), 0u);
  EXPECT_EQ(session.state_bytes(), 0u);
  EXPECT_TRUE(Rewind("one", 0, &session).ok());
  EXPECT_EQ(Rewind("one", 1, &session).error_code(), grpc::StatusCode::OUT_OF_RANGE);
  for (int turn = 0; turn < 4; ++turn) ASSERT_TRUE(Generate(Turn("one", 20, 5)).status.ok());
  EXPECT_EQ(Fork("one", "one", std::nullopt, &session).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Fork("one", "a b", std::nullopt, &session).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status future = Rewind("one", 101, &session);
  EXPECT_EQ(future.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(future.error_message(), HasSubstr("in the future: the session holds 100"));
  const grpc::Status past = Fork("one", "", 49, &session);
  EXPECT_EQ(past.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(past.error_message(), HasSubstr("the oldest one that is kept, 50"));

  engine_.pace = milliseconds(20);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, Turn("one", 20, 50));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(Fork("one", "", std::nullopt, &session).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Rewind("one", 50, &session).error_code(), grpc::StatusCode::ABORTED);
  context.TryCancel();
  while (reader->Read(&message)) continue;
  (void)reader->Finish();
  scheduler_->StopAdmission();
  EXPECT_EQ(Fork("empty", "", std::nullopt, &session).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Rewind("empty", 0, &session).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(SessionsServiceTest, ADrainingServerMakesAndRenamesNone) {
  ASSERT_TRUE(Create("one", "before").ok());
  scheduler_->StopAdmission();
  const grpc::Status refused = Create("two");
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("shutting down"));
  v1::Session session;
  EXPECT_EQ(Update("one", "after", &session).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Count(Outcome::kRejectedDraining), 0u) << "they are no requests";
  ASSERT_TRUE(Get("one", &session).ok());
  EXPECT_EQ(session.name(), "before");
  EXPECT_EQ(List(10).sessions_size(), 1);
  EXPECT_TRUE(Delete("one").ok());
}

TEST_F(SessionsServiceTest, InvalidUtf8IsNamed) {
  std::string answer;
  const grpc::Status status =
      CallPath("/rivulet.v1.Sessions/CreateSession", "\x12\x02\xFF\xFE", &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("name at byte 0 is not UTF-8"));
}

TEST_F(SessionsServiceTest, TurnsContinueOneContext) {
  ASSERT_TRUE(Create("talk").ok());
  const Stream first = Generate(TurnOf("talk", "abc", 20));
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.messages.front().session_id(), "talk");
  EXPECT_EQ(first.tokens(), ExpectedTokens({0, 1, 2}, 0, 20));
  EXPECT_EQ(first.usage().cached_tokens(), 0u);
  v1::Session session;
  ASSERT_TRUE(Get("talk", &session).ok());
  EXPECT_EQ(session.position(), 23u);
  EXPECT_EQ(session.tier(), "host");
  EXPECT_EQ(session.state_bytes(), 128u);  // a base and a tail of FakeEngine

  std::vector<uint32_t> context =
      std::vector<uint32_t>{0, 1, 2} + first.tokens() + std::vector<uint32_t>{3};
  const Stream second = Generate(TurnOf("talk", "d", 10));
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.tokens(), ExpectedTokens(context, 0, 10));
  EXPECT_EQ(second.usage().prompt_tokens(), 1u);
  EXPECT_EQ(second.usage().cached_tokens(), 22u) << "all but the last sampled one";

  context = context + second.tokens();
  for (const bool as_text : {true, false}) {
    v1::GenerateRequest more = TurnOf("talk", "", 5);
    if (!as_text) more.clear_input();
    const Stream third = Generate(more);
    ASSERT_TRUE(third.status.ok()) << third.status.error_message();
    EXPECT_EQ(third.tokens(), ExpectedTokens(context, 0, 5)) << "goes on without a prompt";
    context = context + third.tokens();
  }
}

class BosTest : public ServiceTest {
 protected:
  BosTest() : ServiceTest(seconds(300), FakeTokenizer::kBos) {}
};

TEST_F(BosTest, ComesOnceAtTheBeginning) {
  ASSERT_TRUE(Create("talk").ok());
  EXPECT_EQ(Generate(TurnOf("talk", "ab", 1)).usage().prompt_tokens(), 3u);
  EXPECT_EQ(Generate(TurnOf("talk", "ab", 1)).usage().prompt_tokens(), 2u);
  EXPECT_EQ(Generate(MakeProto("ab", 1)).usage().prompt_tokens(), 3u);
}

TEST_F(SessionsServiceTest, WhatASessionRefuses) {
  ASSERT_TRUE(Create("talk").ok());
  EXPECT_EQ(Generate(TurnOf("unknown", "a", 1)).status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Count(Outcome::kRejectedSession), 1u);
  EXPECT_THAT(Generate(TurnOf("talk", "", 1)).status.error_message(), HasSubstr("empty"));
  v1::GenerateRequest request = TurnOf("talk", "a", 1);
  request.set_n(kSlots + 1);
  EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("n = 5 completions"));
  request = TurnOf(std::string(129, 'a'), "a", 1);
  EXPECT_THAT(Generate(request).status.error_message(), HasSubstr("128"));
  ASSERT_TRUE(Generate(TurnOf("talk", "a", 1)).status.ok());
  EXPECT_THAT(Generate(TurnOf("talk", "", 0)).status.error_message(), HasSubstr("nothing to do"));
  EXPECT_EQ(Generate(TurnOf("talk", "!", 1)).status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  v1::Session session;
  ASSERT_TRUE(Get("talk", &session).ok());
  EXPECT_FALSE(session.busy()) << "a refused request keeps no lease";
  EXPECT_EQ(session.position(), 2u);
}

TEST_F(SessionsServiceTest, SeveralCompletionsAreForksAndTheFirstStays) {
  ASSERT_TRUE(Create("one").ok());
  ASSERT_TRUE(Generate(Turn("one", 20, 5)).status.ok());
  v1::GenerateRequest request = Turn("one", 7, 30);
  request.set_n(3);
  const Stream dropped = Generate(request);
  ASSERT_TRUE(dropped.status.ok()) << dropped.status.error_message();
  for (const auto& message : dropped.messages) EXPECT_EQ(message.fork_id(), "");
  v1::Session session;
  ASSERT_TRUE(Get("one", &session).ok());
  EXPECT_EQ(session.position(), 62u);
  ASSERT_TRUE(Rewind("one", 25, &session).ok());

  request.set_keep_choices(true);
  const Stream kept = Generate(request);
  ASSERT_TRUE(kept.status.ok()) << kept.status.error_message();
  std::vector<std::string> forks(3);
  for (const auto& message : kept.messages) {
    if (message.has_usage()) forks[message.index()] = message.fork_id();
  }
  EXPECT_EQ(forks[0], "") << "it is the session itself";
  ASSERT_TRUE(Get(forks[2], &session).ok());
  EXPECT_EQ(session.forked_from(), "one");
  EXPECT_EQ(session.forked_at(), 32u);
  EXPECT_EQ(session.position(), 62u);
  EXPECT_THAT(session.kept_positions(), testing::ElementsAre(0, 25));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(kept.tokens(i), dropped.tokens(i)) << i;
    const Stream next = Generate(Turn(i == 0 ? "one" : forks[i], 1, 10));
    std::vector<uint32_t> context = ExpectedTokens(Ids(20), 0, 5);
    context = Ids(20) + context + Ids(7);
    const std::vector<uint32_t> choice = ExpectedTokens(context, i, 30);
    EXPECT_EQ(kept.tokens(i), choice);
    EXPECT_EQ(next.tokens(), ExpectedTokens(context + choice + Ids(1), 0, 10)) << i;
  }
}

TEST_F(SessionsServiceTest, SeveralCompletionsGoOnWithoutAPrompt) {
  ASSERT_TRUE(Create("one").ok());
  ASSERT_TRUE(Generate(Turn("one", 20, 5)).status.ok());
  v1::GenerateRequest request = Turn("one", 0, 4);
  request.set_n(2);
  const Stream stream = Generate(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  const std::vector<uint32_t> context = Ids(20) + ExpectedTokens(Ids(20), 0, 5);
  EXPECT_EQ(stream.tokens(0), ExpectedTokens(context, 0, 4));
  EXPECT_EQ(stream.tokens(1), ExpectedTokens(context, 1, 4));
}

TEST_F(SessionsServiceTest, ScoreReadsOnAndLeavesTheSession) {
  ASSERT_TRUE(Create("talk").ok());
  v1::ScoreRequest request;
  request.set_session_id("talk");
  request.set_prompt("abc");
  v1::ScoreResponse response;
  ASSERT_TRUE(Score(request, &response).ok());
  EXPECT_EQ(response.tokens_size(), 2) << "the first has no predecessor";
  ASSERT_TRUE(Generate(TurnOf("talk", "ab", 20)).status.ok());
  for (int i = 0; i < 3; ++i) {
    const grpc::Status status = Score(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.tokens_size(), 3);
    EXPECT_EQ(response.tokens(0).text(), "a");
  }
  v1::Session session;
  ASSERT_TRUE(Get("talk", &session).ok());
  EXPECT_EQ(session.position(), 22u);
  EXPECT_FALSE(session.busy());
  request.set_prompt("");
  EXPECT_EQ(Score(request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_session_id("unknown");
  request.set_prompt("a");
  EXPECT_EQ(Score(request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(SessionsServiceTest, BusySessionIsAborted) {
  engine_.pace = milliseconds(1);
  ASSERT_TRUE(Create("talk").ok());
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, TurnOf("talk", "a", 1u << 30));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  grpc::ClientContext second;
  const Stream refused = Generate(TurnOf("talk", "a", 1), &second);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(second.GetServerTrailingMetadata().count("retry-after-ms"), 1u);
  v1::ScoreRequest score;
  score.set_session_id("talk");
  score.set_prompt("a");
  v1::ScoreResponse scores;
  EXPECT_EQ(Score(score, &scores).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Count(Outcome::kRejectedSession), 2u);
  EXPECT_EQ(Delete("talk").error_code(), grpc::StatusCode::ABORTED);
  v1::Session session;
  ASSERT_TRUE(Get("talk", &session).ok());
  EXPECT_TRUE(session.busy());
  ASSERT_TRUE(Update("talk", "renamed", &session).ok()) << "a name is no state";
  EXPECT_EQ(session.name(), "renamed");
  EXPECT_TRUE(session.busy());
  context.TryCancel();
  while (reader->Read(&message)) continue;
  EXPECT_TRUE(Eventually([&] { return Delete("talk").ok(); }));
  EXPECT_TRUE(Eventually([&] { return metrics_.state_slots_used.value() == 0; }));
}

// Many threads use the same session: never two at once, and refused turns leave no trace.
TEST_F(SessionsServiceTest, OneTurnAtATime) {
  ASSERT_TRUE(Create("talk").ok());
  std::atomic<uint32_t> won{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 6; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 30; ++i) {
        const Stream stream = Generate(TurnOf("talk", "ab", 3));
        if (stream.status.ok()) {
          ++won;
          ASSERT_EQ(stream.tokens().size(), 3u);
        } else {
          ASSERT_EQ(stream.status.error_code(), grpc::StatusCode::ABORTED)
              << stream.status.error_message();
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(won, 0u);
  v1::Session session;
  ASSERT_TRUE(Get("talk", &session).ok());
  EXPECT_EQ(session.position(), 5u * won);
  EXPECT_FALSE(session.busy());
}

// Delete against turns: each turn runs whole or finds no session, and no slot is left.
TEST_F(SessionsServiceTest, DeleteRacesTurns) {
  std::atomic<bool> stop{false};
  std::thread deleter([&] {
    while (!stop) {
      const grpc::StatusCode code = Delete("talk").error_code();
      ASSERT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::ABORTED ||
                  code == grpc::StatusCode::NOT_FOUND);
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        (void)Create("talk");
        const grpc::StatusCode code = Generate(TurnOf("talk", "ab", 2)).status.error_code();
        ASSERT_TRUE(code == grpc::StatusCode::OK || code == grpc::StatusCode::ABORTED ||
                    code == grpc::StatusCode::NOT_FOUND)
            << code;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  stop = true;
  deleter.join();
  (void)Delete("talk");
  EXPECT_TRUE(WaitUntilIdle());
  EXPECT_TRUE(Eventually([&] { return metrics_.state_slots_used.value() == 0; }));
  EXPECT_EQ(metrics_.sessions.value(), 0);
}

// A client whose connection is lost when it would learn its first fork.
class LostClient : public ResponseStream {
 public:
  absl::Status Prepare(v1::GenerateResponse message) override {
    MutexLock lock(&mutex_);
    message_ = std::move(message);
    return absl::OkStatus();
  }
  void Send() override {
    MutexLock lock(&mutex_);
    sent_ = true;
    changed_.NotifyAll();
  }
  void CutOff() override {}
  void OnGenerationEnd(const absl::Status& status) override {
    MutexLock lock(&mutex_);
    end_ = status;
    changed_.NotifyAll();
  }

  // Answers the writes of `call` until it ends.
  absl::Status Serve(GenerationCall& call) {
    for (;;) {
      bool ok = false;
      {
        MutexLock lock(&mutex_);
        while (!sent_ && !end_.has_value()) changed_.Wait(&mutex_);
        if (!sent_) return *end_;
        sent_ = false;
        ok = message_.fork_id().empty();
      }
      call.OnWriteDone(ok);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  v1::GenerateResponse message_ ABSL_GUARDED_BY(mutex_);
  bool sent_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(SessionsServiceTest, ChoicesThatTheClientIsNotToldOfAreDeleted) {
  ASSERT_TRUE(Create("one").ok());
  v1::GenerateRequest request = Turn("one", 7, 30);
  request.set_n(4);
  request.set_keep_choices(true);
  const auto client = std::make_shared<LostClient>();
  const CallerPtr caller = *context_->authenticator.Admit(std::nullopt, Scope::kGenerate);
  const auto call = std::make_shared<GenerationCall>(
      *context_, CallOrigin{"Generate", Clock::now(), kNoDeadline, caller, ""}, client);
  call->Run(request);
  client->Serve(*call).IgnoreError();  // OK if the scheduler was done before the first write
  const v1::ListSessionsResponse left = List(10);
  ASSERT_EQ(left.sessions_size(), 1) << left.DebugString();
  EXPECT_EQ(left.sessions(0).id(), "one");
}

}  // namespace
}  // namespace rivulet
