// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The client library's sessions and chat against a server in this process.
#include "client/client.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "client/fake_server.h"

namespace rivulet {
namespace {

class ClientTest : public testing::Test {
 protected:
  static v1::GenerateRequest Turn(const std::string& prompt, const std::string& session = "") {
    v1::GenerateRequest request;
    request.set_prompt(prompt);
    request.set_session_id(session);
    return request;
  }

  // Runs a turn and collects its text; last_ is its last message.
  absl::Status Run(ChatStream& chat, const v1::GenerateRequest& request) {
    text_.clear();
    return chat.Turn(request, [this](const v1::GenerateResponse& message) {
      text_ += message.text();
      last_ = message;
      return true;
    });
  }

  v1::Session Create(const std::string& id) {
    v1::CreateSessionRequest request;
    request.set_id(id);
    const auto session = client_.CreateSession(request);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return session.ok() ? *session : v1::Session();
  }

  FakeServer server_;
  Client client_{server_.address()};
  std::string text_;
  v1::GenerateResponse last_;
};

TEST_F(ClientTest, CreatesGetsAndDeletesASession) {
  EXPECT_EQ(Create("tale").id(), "tale");
  EXPECT_FALSE(Create("").id().empty());
  EXPECT_EQ(client_.GetSession("tale")->id(), "tale");
  EXPECT_TRUE(client_.DeleteSession("tale").ok());
  EXPECT_TRUE(absl::IsNotFound(client_.GetSession("tale").status()));
  EXPECT_TRUE(absl::IsNotFound(client_.DeleteSession("tale")));
}

TEST_F(ClientTest, RenamesASession) {
  Create("tale");
  v1::UpdateSessionRequest request;
  request.set_id("tale");
  request.set_name("of a goose");
  EXPECT_EQ(client_.UpdateSession(request)->name(), "of a goose");
  EXPECT_EQ(client_.GetSession("tale")->name(), "of a goose");
  request.set_id("missing");
  EXPECT_TRUE(absl::IsNotFound(client_.UpdateSession(request).status()));
}

TEST_F(ClientTest, ListsAllPages) {
  std::set<std::string> wanted, got;
  for (size_t i = 0; i < 3 * FakeSessions::kPageSize + 1; ++i) {
    wanted.insert(Create("s" + std::to_string(i)).id());
  }
  EXPECT_EQ(client_.ListSessions({})->sessions_size(), FakeSessions::kPageSize);
  const auto all = client_.ListAllSessions();
  ASSERT_TRUE(all.ok());
  for (const v1::Session& session : *all) got.insert(session.id());
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(all->size(), wanted.size());
}

TEST_F(ClientTest, RunsManyTurnsOnOneStream) {
  const auto chat = client_.OpenChat();
  Create("tale");
  ASSERT_TRUE(Run(*chat, Turn("once upon", "tale")).ok());
  EXPECT_EQ(text_, " ONCE UPON");
  ASSERT_TRUE(Run(*chat, Turn("a time", "tale")).ok());
  EXPECT_EQ(text_, " A TIME");
  EXPECT_EQ(last_.usage().cached_tokens(), 4u);
  EXPECT_TRUE(chat->Close().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(*chat, Turn("more"))));
}

TEST_F(ClientTest, CancelEndsTheTurnAndNotTheStream) {
  const auto chat = client_.OpenChat();
  chat->Cancel();  // no turn runs: nothing happens
  std::thread canceller;
  const absl::Status status = chat->Turn(Turn("hang"), [&](const v1::GenerateResponse& message) {
    last_ = message;
    if (!canceller.joinable()) canceller = std::thread([&] { chat->Cancel(); });
    return true;
  });
  canceller.join();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(last_.finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_TRUE(Run(*chat, Turn("once")).ok());
  EXPECT_EQ(text_, " ONCE");
}

TEST_F(ClientTest, FalseFromTheCallbackCancelsTheTurn) {
  const auto chat = client_.OpenChat();
  int calls = 0;
  EXPECT_TRUE(chat->Turn(Turn("hang on"), [&](const auto&) { return ++calls < 1; }).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(Run(*chat, Turn("once")).ok());
}

TEST_F(ClientTest, AFailedTurnEndsTheStreamAndKeepsItsStatus) {
  const auto chat = client_.OpenChat();
  EXPECT_TRUE(absl::IsUnavailable(Run(*chat, Turn("break"))));
  EXPECT_EQ(text_, " BREAK") << "what came before stands";
  EXPECT_TRUE(absl::IsUnavailable(Run(*chat, Turn("once"))));
  EXPECT_EQ(text_, "");
  EXPECT_TRUE(absl::IsUnavailable(chat->Close()));
}

TEST_F(ClientTest, ARefusalSaysWhenToRetry) {
  const absl::Status status = Run(*client_.OpenChat(), Turn("crowd"));
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_EQ(RetryAfter(status), std::chrono::milliseconds(70));
  EXPECT_EQ(RetryAfter(Run(*client_.OpenChat(), Turn("break"))), std::nullopt);
  absl::Status nonsense = absl::AbortedError("busy");
  nonsense.SetPayload(kRetryAfterPayload, absl::Cord("soon"));
  EXPECT_EQ(RetryAfter(nonsense), std::nullopt);
}

TEST_F(ClientTest, AStreamThatEndsInATurnIsAFailure) {
  const auto chat = client_.OpenChat();
  EXPECT_TRUE(absl::IsUnavailable(Run(*chat, Turn("end"))));
}

TEST_F(ClientTest, CancellationAbandonsAServerThatDoesNotAnswer) {
  Cancellation cancellation;
  const auto chat = client_.OpenChat({.timeout = std::nullopt, .cancellation = &cancellation});
  const absl::Status status = chat->Turn(Turn("deaf"), [&](const auto&) {
    cancellation.Cancel();
    return true;
  });
  EXPECT_TRUE(absl::IsCancelled(status)) << status.ToString();
}

TEST_F(ClientTest, AnUnreachableServerIsUnavailable) {
  Client unreachable("127.0.0.1:1");
  const auto chat = unreachable.OpenChat();
  EXPECT_TRUE(absl::IsUnavailable(Run(*chat, Turn("once"))));
  EXPECT_TRUE(absl::IsUnavailable(unreachable.ListAllSessions().status()));
}

}  // namespace
}  // namespace rivulet
