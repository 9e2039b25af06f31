// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Chat: many turns on one stream.
#include <cstdint>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/service_fixture.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

constexpr uint32_t kEndless = 1u << 30;

class ChatTest : public ServiceTest {
 protected:
  using Clients = grpc::ClientReaderWriter<v1::ChatRequest, v1::GenerateResponse>;

  explicit ChatTest(Clock::duration stall_limit = seconds(300)) : ServiceTest(stall_limit) {}

  // One stream, from the client's side.
  struct Chat {
    // No test waits for ever, also if something goes wrong.
    explicit Chat(v1::Inference::Stub& stub, milliseconds timeout = seconds(60)) {
      context.set_deadline(std::chrono::system_clock::now() + timeout);
      stream = stub.Chat(&context);
    }

    bool Begin(const v1::GenerateRequest& turn) {
      v1::ChatRequest request;
      *request.mutable_turn() = turn;
      return stream->Write(request);
    }
    bool Cancel() {
      v1::ChatRequest request;
      request.set_cancel(true);
      return stream->Write(request);
    }
    // What comes up to the message with finish_reason, or the end of the stream.
    Stream ReadTurn() {
      Stream turn;
      v1::GenerateResponse message;
      while (stream->Read(&message)) {
        turn.messages.push_back(message);
        if (message.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) break;
      }
      return turn;
    }
    Stream Run(const v1::GenerateRequest& turn) {
      EXPECT_TRUE(Begin(turn));
      return ReadTurn();
    }
    // The status of a stream that the server has ended, or will without the client's doing.
    grpc::Status Finish() {
      v1::GenerateResponse message;
      while (stream->Read(&message)) continue;
      return stream->Finish();
    }
    grpc::Status Close() {
      stream->WritesDone();
      return Finish();
    }

    grpc::ClientContext context;
    std::unique_ptr<Clients> stream;
  };

  bool NothingLeft() {
    return WaitUntilIdle() && Eventually([&] {
             return metrics_.state_slots_used.value() == 0 && metrics_.sessions.value() == 0;
           });
  }
};

TEST_F(ChatTest, TurnsShareASessionThatGoesWithTheStream) {
  Chat chat(*stub_);
  const Stream first = chat.Run(MakeProto("abc", 20));
  ASSERT_FALSE(first.messages.empty());
  EXPECT_EQ(first.tokens(), ExpectedTokens({0, 1, 2}, 0, 20));
  const std::string session = first.messages.front().session_id();
  EXPECT_FALSE(session.empty());
  v1::Session listed;
  EXPECT_TRUE(Get(session, &listed).ok());
  const Stream second = chat.Run(MakeProto("d", 10));
  ASSERT_FALSE(second.messages.empty());
  EXPECT_EQ(second.messages.front().session_id(), session);
  EXPECT_NE(second.messages.front().request_id(), first.messages.front().request_id());
  EXPECT_EQ(second.tokens(),
            ExpectedTokens(
                std::vector<uint32_t>{0, 1, 2} + first.tokens() + std::vector<uint32_t>{3}, 0, 10));
  EXPECT_EQ(second.usage().cached_tokens(), 22u);
  const grpc::Status status = chat.Close();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Get(session, &listed).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, NamedSessionsStay) {
  ASSERT_TRUE(Create("one").ok());
  ASSERT_TRUE(Create("two").ok());
  Chat chat(*stub_);
  const std::vector<uint32_t> first = chat.Run(TurnOf("one", "a", 5)).tokens();
  const std::vector<uint32_t> context = std::vector<uint32_t>{0} + first + std::vector<uint32_t>{1};
  EXPECT_EQ(chat.Run(MakeProto("b", 5)).tokens(), ExpectedTokens(context, 0, 5));
  EXPECT_EQ(chat.Run(TurnOf("two", "c", 5)).tokens(), ExpectedTokens({2}, 0, 5));
  const Stream fourth = chat.Run(MakeProto("d", 5));
  EXPECT_EQ(fourth.messages.front().session_id(), "two");
  EXPECT_TRUE(chat.Close().ok());
  v1::Session session;
  ASSERT_TRUE(Get("one", &session).ok());
  EXPECT_EQ(session.position(), 12u);
  ASSERT_TRUE(Get("two", &session).ok());
  EXPECT_EQ(metrics_.sessions.value(), 2);
}

TEST_F(ChatTest, CancelEndsTheTurnAndNotTheStream) {
  engine_.pace = milliseconds(1);
  Chat chat(*stub_);
  ASSERT_TRUE(chat.Cancel()) << "without a turn it does nothing";
  ASSERT_TRUE(chat.Begin(MakeProto("a", kEndless)));
  v1::GenerateResponse message;
  ASSERT_TRUE(chat.stream->Read(&message));
  Stream first;
  first.messages.push_back(message);
  ASSERT_TRUE(chat.Cancel());
  ASSERT_TRUE(chat.Cancel());
  for (const auto& rest : chat.ReadTurn().messages) first.messages.push_back(rest);
  EXPECT_EQ(first.messages.back().finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(first.usage().prompt_tokens(), 1u);
  EXPECT_EQ(first.usage().completion_tokens(), first.tokens().size());
  const Stream second = chat.Run(MakeProto("b", 5));
  const std::vector<uint32_t> context =
      std::vector<uint32_t>{0} + first.tokens() + std::vector<uint32_t>{1};
  EXPECT_EQ(second.tokens(), ExpectedTokens(context, 0, 5));
  EXPECT_EQ(Count(Outcome::kCancelled), 1u);
  EXPECT_TRUE(chat.Close().ok());
  EXPECT_TRUE(NothingLeft());
}

// A turn that never got a slot has a last message all the same, and leaves its session as it was.
TEST_F(ChatTest, CancelOfATurnThatWaits) {
  engine_.pace = milliseconds(1);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  v1::GenerateResponse message;
  for (uint32_t i = 0; i < kSlots; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), MakeProto("a", kEndless)));
    ASSERT_TRUE(readers.back()->Read(&message));
  }
  Chat chat(*stub_);
  ASSERT_TRUE(chat.Begin(MakeProto("abc", 5)));
  ASSERT_TRUE(Eventually([&] { return metrics_.requests_waiting.value() == 1; }));
  ASSERT_TRUE(chat.Cancel());
  const Stream stopped = chat.ReadTurn();
  ASSERT_EQ(stopped.messages.size(), 1u);
  EXPECT_EQ(stopped.messages[0].finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_FALSE(stopped.messages[0].session_id().empty());
  EXPECT_EQ(stopped.usage().prompt_tokens(), 0u);
  for (auto& context : contexts) context->TryCancel();
  EXPECT_EQ(chat.Run(MakeProto("d", 5)).tokens(), ExpectedTokens({3}, 0, 5));
  EXPECT_TRUE(chat.Close().ok());
  for (auto& reader : readers) {
    while (reader->Read(&message)) continue;
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, ATurnTooEarlyEndsTheStream) {
  engine_.pace = milliseconds(1);
  Chat chat(*stub_);
  ASSERT_TRUE(chat.Begin(MakeProto("a", kEndless)));
  v1::GenerateResponse message;
  ASSERT_TRUE(chat.stream->Read(&message));
  ASSERT_TRUE(chat.Begin(MakeProto("b", 1)));
  const grpc::Status status = chat.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("finish_reason"));
  EXPECT_EQ(Count(Outcome::kCancelled), 1u);
  EXPECT_EQ(Count(Outcome::kRejectedInvalid), 1u);
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, ABadTurnEndsTheStream) {
  ASSERT_TRUE(Create("talk").ok());
  v1::GenerateRequest several = MakeProto("a", 1);
  several.set_n(2);
  const std::pair<v1::GenerateRequest, grpc::StatusCode> cases[] = {
      {several, grpc::StatusCode::INVALID_ARGUMENT},
      {MakeProto("!", 1), grpc::StatusCode::INVALID_ARGUMENT},
      {MakeProto("", 1), grpc::StatusCode::INVALID_ARGUMENT},
      {TurnOf("unknown", "a", 1), grpc::StatusCode::NOT_FOUND},
      {TurnOf("talk", "", 1), grpc::StatusCode::INVALID_ARGUMENT},
  };
  for (const auto& [turn, code] : cases) {
    Chat chat(*stub_);
    ASSERT_TRUE(chat.Begin(turn));
    EXPECT_EQ(chat.Finish().error_code(), code) << turn.DebugString();
  }
  Chat nothing(*stub_);
  ASSERT_TRUE(nothing.stream->Write({}));
  EXPECT_THAT(nothing.Finish().error_message(), HasSubstr("set turn or cancel"));
  EXPECT_TRUE(Delete("talk").ok());
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, ABusySessionEndsTheStreamWithARetryHint) {
  engine_.pace = milliseconds(1);
  ASSERT_TRUE(Create("talk").ok());
  Chat first(*stub_), second(*stub_);
  ASSERT_TRUE(first.Begin(TurnOf("talk", "a", kEndless)));
  v1::GenerateResponse message;
  ASSERT_TRUE(first.stream->Read(&message));
  ASSERT_TRUE(second.Begin(TurnOf("talk", "a", 1)));
  EXPECT_EQ(second.Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(second.context.GetServerTrailingMetadata().count("retry-after-ms"), 1u);
  ASSERT_TRUE(first.Cancel());
  EXPECT_EQ(first.ReadTurn().messages.back().finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_TRUE(first.Close().ok());
}

TEST_F(ChatTest, AFailedStepEndsTheStreamAndItsSession) {
  ASSERT_TRUE(Create("talk").ok());
  Chat chat(*stub_);
  EXPECT_FALSE(chat.Run(TurnOf("talk", "a", 2)).messages.empty());
  engine_.fails = true;
  ASSERT_TRUE(chat.Begin(MakeProto("b", 2)));
  EXPECT_EQ(chat.ReadTurn().messages.back().finish_reason(), v1::FINISH_REASON_ERROR);
  const grpc::Status status = chat.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "no luck");
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, HalfCloseLetsTheTurnEnd) {
  engine_.pace = milliseconds(1);
  Chat chat(*stub_);
  ASSERT_TRUE(chat.Begin(MakeProto("a", 50)));
  chat.stream->WritesDone();
  EXPECT_EQ(chat.ReadTurn().tokens().size(), 50u);
  EXPECT_TRUE(chat.Finish().ok());
  Chat silent(*stub_);
  EXPECT_TRUE(silent.Close().ok());
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, AClientThatGoesLeavesNothing) {
  engine_.pace = milliseconds(1);
  v1::GenerateResponse message;
  Chat running(*stub_), idle(*stub_), silent(*stub_);
  ASSERT_TRUE(running.Begin(MakeProto("a", kEndless)));
  ASSERT_TRUE(running.stream->Read(&message));
  EXPECT_FALSE(idle.Run(MakeProto("b", 2)).messages.empty());
  EXPECT_EQ(metrics_.sessions.value(), 2);
  for (Chat* chat : {&running, &idle, &silent}) {
    chat->context.TryCancel();
    EXPECT_EQ(chat->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, TheDeadlineHoldsForTheStream) {
  engine_.pace = milliseconds(1);
  Chat running(*stub_, milliseconds(300)), idle(*stub_, milliseconds(300));
  ASSERT_TRUE(running.Begin(MakeProto("a", kEndless)));
  EXPECT_FALSE(idle.Run(MakeProto("b", 2)).messages.empty());
  for (Chat* chat : {&running, &idle}) {
    EXPECT_EQ(chat->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(NothingLeft());
}

// A client may answer the message with finish_reason at once, before the server has put the turn
// away.
TEST_F(ChatTest, TheNextTurnMayComeAtOnce) {
  Chat chat(*stub_);
  std::vector<uint32_t> context;
  for (int i = 0; i < 300; ++i) {
    const Stream turn = chat.Run(MakeProto("a", 2));
    ASSERT_FALSE(turn.messages.empty()) << chat.Finish().error_message();
    context.push_back(0);
    ASSERT_EQ(turn.tokens(), ExpectedTokens(context, 0, 2));
    context = context + turn.tokens();
  }
  EXPECT_TRUE(chat.Close().ok());
  EXPECT_TRUE(NothingLeft());
}

// Cancels that meet their turn anywhere: in the queue, in the prompt, in its last token, or after.
TEST_F(ChatTest, CancelRacesTheEnd) {
  std::vector<std::thread> clients;
  for (int c = 0; c < 2; ++c) {
    clients.emplace_back([&, c] {
      Chat chat(*stub_);
      for (int i = 0; i < 100; ++i) {
        ASSERT_TRUE(chat.Begin(MakeProto("ab", 1 + static_cast<uint32_t>((i + c) % 7))));
        ASSERT_TRUE(chat.Cancel());
        const Stream turn = chat.ReadTurn();
        ASSERT_FALSE(turn.messages.empty()) << chat.Finish().error_message();
        const auto reason = turn.messages.back().finish_reason();
        ASSERT_TRUE(reason == v1::FINISH_REASON_CANCELLED || reason == v1::FINISH_REASON_LENGTH);
      }
      EXPECT_TRUE(chat.Close().ok());
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(NothingLeft());
}

// What the client sends when the stream has ended already finds no call any more.
TEST_F(ChatTest, MessagesAfterTheEnd) {
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        Chat chat(*stub_);
        (void)chat.Begin(MakeProto("!", 1));
        for (int k = 0; k < i % 10; ++k) (void)chat.Cancel();
        const grpc::StatusCode code = chat.Close().error_code();
        const bool stopped_unread = i % 10 > 0 && code == grpc::StatusCode::OK;
        EXPECT_TRUE(code == grpc::StatusCode::INVALID_ARGUMENT || stopped_unread) << code;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(NothingLeft());
}

// Streams that end in every way at any moment.
TEST_F(ChatTest, GoneAtAnyMomentLeavesNothing) {
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 60; ++i) {
        Chat chat(*stub_);
        (void)chat.Begin(MakeProto("ab", 20));
        std::this_thread::sleep_for(std::chrono::microseconds(50 * ((i * 7 + c) % 30)));
        if (i % 3 == 0) (void)chat.Begin(MakeProto("c", 1));
        if (i % 3 == 1) chat.context.TryCancel();
        (void)chat.Close();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(NothingLeft());
}

TEST_F(ChatTest, ADrainEndsIdleStreamsAndLetsTurnsFinish) {
  engine_.pace = milliseconds(1);
  Chat idle(*stub_), running(*stub_), silent(*stub_);
  EXPECT_FALSE(idle.Run(MakeProto("b", 2)).messages.empty());
  ASSERT_TRUE(running.Begin(MakeProto("a", 200)));
  v1::GenerateResponse message;
  ASSERT_TRUE(running.stream->Read(&message));
  ASSERT_TRUE(silent.Cancel());
  scheduler_->StopAdmission();
  server_->EndIdleStreams();
  for (Chat* chat : {&idle, &silent}) {
    const grpc::Status status = chat->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(status.error_message(), HasSubstr("shutting down"));
  }
  EXPECT_EQ(running.ReadTurn().messages.back().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(running.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  Chat late(*stub_);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(NothingLeft());
}

class StalledChatTest : public ChatTest {
 protected:
  StalledChatTest() : ChatTest(milliseconds(200)) {}
};

// The stream's session goes with it: so the call has really ended, though its client, who must read
// to let a write end, has done nothing.
TEST_F(StalledChatTest, AClientThatNeverReadsIsCutOff) {
  Chat chat(*stub_);
  v1::GenerateRequest turn = MakeProto("a", kEndless);
  turn.set_logprobs(20);
  ASSERT_TRUE(chat.Begin(turn));
  EXPECT_TRUE(Eventually([&] { return Count(Outcome::kStalled) == 1; }));
  EXPECT_TRUE(NothingLeft());
  EXPECT_EQ(chat.Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace rivulet
