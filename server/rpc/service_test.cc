// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The services over a real gRPC channel, with FakeEngine behind them.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/service_fixture.h"
#include "server/rpc/wire.h"
#include "server/text/detokenizer.h"

namespace rivulet {
namespace {

using testing::HasSubstr;

TEST_F(ServiceTest, GenerateStreamsTokensTextAndUsage) {
  v1::GenerateRequest request = MakeProto("abc", 20);
  request.set_request_id("mine");
  request.set_logprobs(1);
  request.mutable_sampling()->set_seed(77);
  const Stream stream = Generate(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  const std::vector<uint32_t> expected = ExpectedTokens({0, 1, 2}, 0, 20);
  EXPECT_EQ(stream.tokens(), expected);
  EXPECT_EQ(stream.messages.front().request_id(), "mine");
  EXPECT_EQ(stream.messages.front().seed(), 77u);
  std::string text, expected_text;
  int logprobs = 0;
  for (const auto& message : stream.messages) {
    text += message.text();
    logprobs += message.logprobs_size();
  }
  EXPECT_EQ(text, Detokenize(tokenizer_, expected, false));
  EXPECT_EQ(logprobs, 20);
  const v1::GenerateResponse& last = stream.messages.back();
  EXPECT_EQ(last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(last.usage().prompt_tokens(), 3u);
  EXPECT_EQ(last.usage().completion_tokens(), 20u);
}

TEST_F(ServiceTest, SeveralCompletionsAndPromptLogprobs) {
  v1::GenerateRequest request = MakeProto("abcde", 10);
  request.set_n(3);
  request.set_prompt_logprobs(2);
  const Stream stream = Generate(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stream.tokens(i), ExpectedTokens({0, 1, 2, 3, 4}, i, 10));
  }
  EXPECT_EQ(stream.messages.front().prompt_logprobs_size(), 4);
  EXPECT_FALSE(stream.messages.front().request_id().empty());
}

TEST_F(ServiceTest, LogprobsOfALongPromptComeFirst) {
  v1::GenerateRequest request = MakeProto(std::string(900, 'a'), 5);
  request.set_prompt_logprobs(3);
  const Stream stream = Generate(request);
  ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
  EXPECT_EQ(stream.messages.front().prompt_logprobs_size(), 899);
  EXPECT_EQ(stream.tokens(), ExpectedTokens(std::vector<uint32_t>(900, 0), 0, 5));
}

TEST_F(ServiceTest, ManyStreamsAtOnce) {
  std::vector<std::thread> clients;
  for (uint32_t c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (uint32_t i = 0; i < 20; ++i) {
        const Stream stream = Generate(MakeProto(std::string(c + 1, 'a'), 30));
        if (stream.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) continue;
        ASSERT_TRUE(stream.status.ok()) << stream.status.error_message();
        ASSERT_EQ(stream.tokens(), ExpectedTokens(std::vector<uint32_t>(c + 1, 0), 0, 30));
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(ServiceTest, ScoreAnswersAllTokensButTheFirst) {
  v1::ScoreRequest request;
  for (uint32_t i = 0; i < 700; ++i) request.mutable_token_ids()->add_ids(i % 90);
  grpc::ClientContext context;
  v1::ScoreResponse response;
  const grpc::Status status = stub_->Score(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.tokens_size(), 699);
  EXPECT_EQ(response.tokens(0).token_id(), 1u);
  EXPECT_EQ(response.tokens(0).text(), "b");
  request.mutable_token_ids()->mutable_ids()->Truncate(1);
  grpc::ClientContext again;
  ASSERT_TRUE(stub_->Score(&again, request, &response).ok());
  EXPECT_EQ(response.tokens_size(), 0) << "a lone token has no predecessor";
}

TEST_F(ServiceTest, TextMethodsAndModel) {
  grpc::ClientContext c1, c2, c3;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("ab");
  v1::TokenizeResponse ids;
  ASSERT_TRUE(stub_->Tokenize(&c1, tokenize, &ids).ok());
  EXPECT_EQ(ids.token_ids_size(), 2);
  v1::DetokenizeRequest detokenize;
  *detokenize.mutable_token_ids() = ids.token_ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(stub_->Detokenize(&c2, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "ab");
  v1::Model model;
  ASSERT_TRUE(stub_->GetModel(&c3, {}, &model).ok());
  EXPECT_EQ(model.name(), "toy");
  EXPECT_EQ(model.vocab_size(), FakeEngine::kVocab);
  EXPECT_EQ(model.fold_interval(), 16u);
  EXPECT_TRUE(model.has_tokenizer());
}

TEST_F(ServiceTest, InvalidUtf8IsNamed) {
  v1::GenerateRequest request = MakeProto("abc", 1);
  request.mutable_stop()->add_strings("ok");
  request.mutable_stop()->add_strings("bad!");
  std::string bytes = request.SerializeAsString();
  bytes.replace(bytes.find("bad!"), 4, "b\xC3\x28!");
  const grpc::Status status = CallRaw("Generate", bytes);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("stop.strings[1] at byte 1 is not UTF-8"));
  EXPECT_THAT(CallRaw("Tokenize", "\x0A\x02\xFF\xFE").error_message(),
              HasSubstr("text at byte 0 is not UTF-8"));
}

TEST_F(ServiceTest, BytesThatAreNoMessage) {
  for (const char* method : {"Generate", "Score", "Tokenize", "Detokenize"}) {
    const grpc::Status status = CallRaw(method, "\x0A\x7F");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("rivulet.v1.")) << method;
  }
}

// 62 MB of empty messages took gigabytes to parse.
TEST_F(ServiceTest, TooManyFieldsAreRefusedUnparsed) {
  const auto messages = [](int count) {
    std::string inner, wire;
    for (int i = 0; i < count; ++i) inner.append("\x0A\x00", 2);
    google::protobuf::io::StringOutputStream stream(&wire);
    google::protobuf::io::CodedOutputStream output(&stream);
    output.WriteTag(v1::GenerateRequest::kMessagesFieldNumber << 3 | 2);
    output.WriteVarint32(static_cast<uint32_t>(inner.size()));
    output.WriteString(inner);
    output.Trim();
    return wire;
  };
  EXPECT_THAT(CallRaw("Generate", messages(kMaxFields - 1)).error_message(),
              HasSubstr("chat template"));
  const grpc::Status status = CallRaw("Generate", messages(kMaxFields));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("more than 1048576 fields"));
  std::string groups;  // unknown ones
  for (int i = 0; i <= kMaxFields / 2; ++i) groups += "\x7B\x7C";
  EXPECT_THAT(CallRaw("Tokenize", groups).error_message(), HasSubstr("more than 1048576 fields"));
  std::string unpacked;
  for (int i = 0; i <= kMaxFields; ++i) unpacked.append("\x0A\x00", 2);
  EXPECT_THAT(CallRaw("Tokenize", unpacked).error_message(), HasSubstr("fields"));
}

TEST_F(ServiceTest, WithoutMemoryRequestsFailAndTheServerGoesOn) {
  const auto expect = [&](grpc::StatusCode code, bool text) {
    v1::GenerateRequest generate = MakeProto("abc", 3);
    generate.set_logprobs(2);
    EXPECT_EQ(Generate(generate).status.error_code(), code);
    grpc::ClientContext c1, c2, c3;
    v1::ScoreRequest score;
    score.set_prompt("abc");
    v1::ScoreResponse scores;
    EXPECT_EQ(stub_->Score(&c1, score, &scores).error_code(), code);
    auto chat = stub_->Chat(&c2);
    v1::ChatRequest turn;
    *turn.mutable_turn() = generate;
    chat->Write(turn);
    chat->WritesDone();
    v1::GenerateResponse message;
    while (chat->Read(&message)) continue;
    EXPECT_EQ(chat->Finish().error_code(), code);
    v1::TokenizeRequest tokenize;
    tokenize.set_text("ab");
    v1::TokenizeResponse ids;
    EXPECT_EQ(stub_->Tokenize(&c3, tokenize, &ids).error_code(),
              text ? code : grpc::StatusCode::OK);
  };
  request_tokenizer_.no_memory_in_encode = true;
  expect(grpc::StatusCode::RESOURCE_EXHAUSTED, true);
  request_tokenizer_.no_memory_in_encode = false;
  request_tokenizer_.no_memory_in_bytes = true;
  expect(grpc::StatusCode::RESOURCE_EXHAUSTED, false);
  request_tokenizer_.no_memory_in_bytes = false;
  expect(grpc::StatusCode::OK, true);
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(ServiceTest, MessageOver64MiBIsRefusedAndTheServerGoesOn) {
  const Stream stream = Generate(MakeProto(std::string(kMaxMessageBytes + 1, 'a'), 1));
  EXPECT_EQ(stream.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(stream.status.error_message(), HasSubstr("67108864"));
  EXPECT_TRUE(Generate(MakeProto("a", 1)).status.ok());
}

// gRPC unpacked 2 MB of gzip to 2 GB before it refused the message.
TEST_F(ServiceTest, CompressedRequestIsRefusedUnread) {
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::TokenizeRequest request;
  request.set_text(std::string(1 << 20, ' '));
  v1::TokenizeResponse response;
  const grpc::Status status = stub_->Tokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_TRUE(Generate(MakeProto("a", 2)).status.ok());
}

TEST_F(ServiceTest, ClientThatCancelsFreesItsRow) {
  engine_.pace = milliseconds(1);
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, MakeProto("a", 1u << 30));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitUntilIdle());
  EXPECT_EQ(metrics_.requests[static_cast<size_t>(Outcome::kCancelled)].value(), 1u);
}

// The scheduler learns of such a cancel right after the request.
TEST_F(ServiceTest, CancelBeforeTheRequestIsSubmitted) {
  engine_.pace = milliseconds(1);
  request_tokenizer_.hold_encode = true;
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, MakeProto("a", 1u << 30));
  ASSERT_TRUE(Eventually([&] { return request_tokenizer_.entered.load(); }));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  std::this_thread::sleep_for(milliseconds(100));  // for the server to hear of it
  request_tokenizer_.hold_encode = false;
  EXPECT_TRUE(Eventually([&] { return Count(Outcome::kCancelled) == 1; }));
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(ServiceTest, DeadlineEndsARunningStream) {
  engine_.pace = milliseconds(1);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(200));
  const Stream stream = Generate(MakeProto("a", 1u << 30), &context);
  EXPECT_EQ(stream.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitUntilIdle());
}

// A client that never reads: gRPC's window fills, then the outbox, then the row is parked. Others
// do not notice, and its cancel still frees the row.
TEST_F(ServiceTest, ClientThatNeverReadsParksItsRowOnly) {
  auto idle_channel = NewChannel();
  auto idle_stub = v1::Inference::NewStub(idle_channel);
  grpc::ClientContext context;
  v1::GenerateRequest request = MakeProto("a", 1u << 30);
  request.set_logprobs(20);
  auto reader = idle_stub->Generate(&context, request);
  const TimePoint limit = Clock::now() + seconds(20);
  uint64_t before = 0;
  do {
    ASSERT_LT(Clock::now(), limit) << "the row is never parked";
    before = metrics_.generation_tokens.value();
    std::this_thread::sleep_for(milliseconds(200));
  } while (before == 0 || metrics_.generation_tokens.value() != before);
  EXPECT_TRUE(Generate(MakeProto("b", 50)).status.ok());
  context.TryCancel();
  v1::GenerateResponse message;
  while (reader->Read(&message)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitUntilIdle());
}

// Four run, two wait, and the seventh is told to retry.
TEST_F(ServiceTest, FullQueueSaysWhenToRetry) {
  engine_.pace = milliseconds(1);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
  v1::GenerateResponse message;
  for (int i = 0; i < 6; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->Generate(contexts.back().get(), MakeProto("a", 1u << 30)));
    if (i < 4) {
      ASSERT_TRUE(readers.back()->Read(&message));
    }
  }
  while (metrics_.requests_waiting.value() < 2) std::this_thread::yield();
  grpc::ClientContext context;
  const Stream refused = Generate(MakeProto("a", 1), &context);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("--max-queue"));
  EXPECT_EQ(context.GetServerTrailingMetadata().count("retry-after-ms"), 1u);
  for (auto& each : contexts) each->TryCancel();
  for (auto& reader : readers) {
    while (reader->Read(&message)) continue;
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

// grpc.health.v1 in bytes: its .proto is not packaged everywhere. The answer's one field is the
// status, 1 for SERVING and 2 for NOT_SERVING.
TEST_F(ServiceTest, HealthFollowsTheServer) {
  const auto check = [&](const std::string& name) {
    std::string request;
    if (!name.empty()) request = std::string("\x0A") + static_cast<char>(name.size()) + name;
    std::string answer;
    EXPECT_TRUE(CallPath("/grpc.health.v1.Health/Check", request, &answer).ok());
    return answer;
  };
  for (const char* name : {"", "rivulet.v1.Inference", "rivulet.v1.Sessions"}) {
    server_->SetServing(true);
    EXPECT_EQ(check(name), "\x08\x01");
    server_->SetServing(false);
    EXPECT_EQ(check(name), "\x08\x02");
  }
}

// A client that opens an HTTP/2 connection, and then neither reads nor answers.
class IdleConnection {
 public:
  explicit IdleConnection(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const std::string hello("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
    EXPECT_EQ(send(socket_, hello.data(), hello.size(), 0), 33);
    char settings[9];  // the server's, which it sends once it has the connection
    EXPECT_EQ(recv(socket_, settings, sizeof(settings), MSG_WAITALL), 9);
  }
  ~IdleConnection() { close(socket_); }

 private:
  const int socket_ = socket(AF_INET, SOCK_STREAM, 0);
};

// gRPC's own wait lasts as long as its limit beside such a connection.
TEST_F(ServiceTest, ShutdownWaitsForCallsAndNotForConnections) {
  engine_.pace = milliseconds(1);
  const IdleConnection idle(server_->port());
  grpc::ClientContext context;
  auto reader = stub_->Generate(&context, MakeProto("a", 200));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  const TimePoint start = Clock::now();
  std::thread shutdown([&] { server_->Shutdown(seconds(30)); });
  int tokens = message.token_ids_size();
  while (reader->Read(&message)) tokens += message.token_ids_size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(tokens, 200);
  shutdown.join();
  EXPECT_LT(Clock::now() - start, seconds(15));
}

TEST_F(ServiceTest, TakenPortIsAnErrorThatNamesTheFlag) {
  const auto second = GrpcServer::Start("127.0.0.1", server_->port(), *context_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(std::to_string(server_->port())));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("--listen"));
}

}  // namespace
}  // namespace rivulet
