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
    explicit Chat(v1::Inference::Stub& stub) : stream(stub.Chat(&context)) {}

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

}  // namespace
}  // namespace rivulet
