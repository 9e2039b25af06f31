// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// vLLM's engine protocol over a real channel, with FakeEngine behind it.
#include "server/vllm/engine_door.h"

#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_directory.h"
#include "kernels/base/test_seed.h"
#include "server/rpc/call_metadata.h"
#include "server/rpc/service_fixture.h"
#include "vllm/vllm_engine.grpc.pb.h"

namespace rivulet {
namespace {

namespace wire = ::vllm::grpc::engine;
using grpc::ClientContext;
using testing::ElementsAre;
using testing::HasSubstr;

std::string model_folder;  // of the running test's model

GrpcDoors Doors(const ServiceContext& service) {
  model_folder = TestDirectory();
  GrpcDoors doors;
  doors.push_back(vllm_engine::MakeDoor(service, model_folder));
  return doors;
}

class EngineDoorTest : public ServiceTest {
 protected:
  explicit EngineDoorTest(Clock::duration stall_limit = seconds(300))
      : ServiceTest(stall_limit, -1, &Doors), engine_stub_(wire::VllmEngine::NewStub(channel_)) {}

  static wire::GenerateRequest Request(const std::vector<uint32_t>& prompt, uint32_t max_tokens,
                                       bool stream = true) {
    wire::GenerateRequest request;
    for (const uint32_t id : prompt) request.mutable_tokenized()->add_input_ids(id);
    request.mutable_sampling_params()->set_max_tokens(max_tokens);
    request.mutable_sampling_params()->set_ignore_eos(true);
    request.set_stream(stream);
    return request;
  }

  struct Reply {
    std::vector<wire::GenerateResponse> messages;
    std::map<uint32_t, std::vector<uint32_t>> tokens;      // of chunks, by index
    std::map<uint32_t, wire::GenerateComplete> completes;  // by index
    std::string session;
    grpc::Status status;
  };

  static void Add(const wire::GenerateResponse& message, Reply& reply) {
    reply.messages.push_back(message);
    if (message.has_complete()) reply.completes[message.complete().index()] = message.complete();
    auto& tokens = reply.tokens[message.chunk().index()];
    const auto& ids = message.chunk().token_ids();
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  Reply Call(const wire::GenerateRequest& request, const std::string& session = "") {
    ClientContext context;
    return Call(request, context, session);
  }
  Reply Call(const wire::GenerateRequest& request, ClientContext& context,
             const std::string& session = "") {
    if (!session.empty()) context.AddMetadata(kSessionIdKey, session);
    Reply reply;
    auto reader = engine_stub_->Generate(&context, request);
    wire::GenerateResponse message;
    while (reader->Read(&message)) Add(message, reply);
    reply.status = reader->Finish();
    const auto& metadata = context.GetServerInitialMetadata();
    if (const auto found = metadata.find(kSessionIdKey); found != metadata.end()) {
      reply.session = {found->second.data(), found->second.size()};
    }
    return reply;
  }

  std::unique_ptr<wire::VllmEngine::Stub> engine_stub_;
};

TEST_F(EngineDoorTest, GeneratesTheTokensOfTheNativeService) {
  wire::GenerateRequest request = Request({0, 1, 2}, 20);
  request.mutable_sampling_params()->set_n(3);
  v1::GenerateRequest native;
  for (const uint32_t id : {0u, 1u, 2u}) native.mutable_token_ids()->add_ids(id);
  native.set_max_tokens(20);
  native.set_n(3);
  native.mutable_stop()->set_ignore_eos(true);
  const Stream expected = Generate(native);
  const Reply streamed = Call(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  request.set_stream(false);
  const Reply whole = Call(request);
  ASSERT_TRUE(whole.status.ok()) << whole.status.error_message();
  EXPECT_EQ(whole.messages.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(streamed.tokens.at(i), expected.tokens(i));
    const auto& ids = whole.completes.at(i).output_ids();
    EXPECT_EQ(std::vector<uint32_t>(ids.begin(), ids.end()), expected.tokens(i));
    EXPECT_EQ(streamed.completes.at(i).finish_reason(), "length");
    EXPECT_EQ(streamed.completes.at(i).prompt_tokens(), 3u);
    EXPECT_EQ(streamed.completes.at(i).completion_tokens(), 20u);
  }
}

TEST_F(EngineDoorTest, LogprobsOfAWholeReplyOfManyTokens) {
  wire::GenerateRequest request = Request({0, 1, 2}, 700, false);
  request.mutable_sampling_params()->set_logprobs(2);
  request.mutable_sampling_params()->set_prompt_logprobs(0);
  const Reply reply = Call(request);
  ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  const wire::GenerateComplete& complete = reply.completes.at(0);
  EXPECT_EQ(complete.output_logprobs().token_logprobs_size(), 700);
  EXPECT_EQ(complete.output_logprobs().top_logprobs_size(), 700);
  EXPECT_THAT(complete.input_logprobs().token_ids(), ElementsAre(0, 1, 2));
  EXPECT_FALSE(complete.input_logprobs().token_logprobs(0).has_value());
}

TEST_F(EngineDoorTest, ASessionGoesOnByItsMetadata) {
  const Reply first = Call(Request({0, 1}, 5), "new");
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  ASSERT_FALSE(first.session.empty());
  const Reply second = Call(Request({3}, 5), first.session);
  ASSERT_TRUE(second.status.ok()) << second.status.error_message();
  EXPECT_EQ(second.session, first.session);
  std::vector<uint32_t> context = std::vector<uint32_t>{0, 1} + first.tokens.at(0);
  context.push_back(3);
  EXPECT_EQ(second.tokens.at(0), ExpectedTokens(context, 0, 5));
  v1::Session session;
  ASSERT_TRUE(Get(first.session, &session).ok());
  EXPECT_EQ(session.position(), 2u + 5 + 1 + 5);
  const Reply unknown = Call(Request({3}, 5), "nothing");
  EXPECT_EQ(unknown.status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(EngineDoorTest, MetadataIsThereOnce) {
  for (const char* const key : {"x-session-id", "x-request-id"}) {
    ClientContext context;
    context.AddMetadata(key, "new");
    context.AddMetadata(key, "new");
    const Reply reply = Call(Request({0}, 5), context);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(reply.status.error_message(), HasSubstr(key));
  }
  EXPECT_TRUE(sessions_.List("", 10).empty());
}

TEST_F(EngineDoorTest, AnEmptyNameIsNoSession) {
  ClientContext context;
  context.AddMetadata("x-session-id", "");
  const Reply reply = Call(Request({0}, 5), context);
  EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(reply.status.error_message(), HasSubstr("x-session-id: it is empty"));
}

TEST_F(EngineDoorTest, ANewSessionIsGoneIfItsRequestIsRefused) {
  const Reply refused = Call(Request({1000}, 5), "new");
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(sessions_.List("", 10).size(), 0u);
}

TEST_F(EngineDoorTest, TwoTurnsAtOnceOnASessionAreOneTooMany) {
  ASSERT_TRUE(Create("s").ok());
  engine_.pace = milliseconds(2);
  ClientContext context;
  context.AddMetadata(kSessionIdKey, "s");
  auto reader = engine_stub_->Generate(&context, Request({0}, 100000));
  wire::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  const Reply second = Call(Request({1}, 5), "s");
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::ABORTED);
  context.TryCancel();
  while (reader->Read(&message)) continue;
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(EngineDoorTest, AbortEndsWithALastMessage) {
  for (const bool stream : {true, false}) {
    engine_.pace = milliseconds(1);
    wire::GenerateRequest request = Request({0}, 100000, stream);
    request.set_request_id("mine");
    Reply reply;
    std::thread caller([&] { reply = Call(request); });
    EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() > 0; }));
    wire::AbortRequest abort;
    abort.add_request_ids("unknown");
    abort.add_request_ids("mine");
    wire::AbortResponse response;
    ClientContext context;
    EXPECT_TRUE(engine_stub_->Abort(&context, abort, &response).ok());
    caller.join();
    EXPECT_TRUE(reply.status.ok()) << reply.status.error_message();
    EXPECT_EQ(reply.completes.at(0).finish_reason(), "abort");
    EXPECT_TRUE(WaitUntilIdle());
  }
}

TEST_F(EngineDoorTest, ADeadlineEndsTheWork) {
  engine_.pace = milliseconds(2);
  for (const bool stream : {true, false}) {
    ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
    const Reply reply = Call(Request({0}, 100000, stream), context);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_TRUE(WaitUntilIdle());
  }
}

TEST_F(EngineDoorTest, AClientThatVanishesEndsItsWork) {
  engine_.pace = milliseconds(2);
  for (const bool stream : {true, false}) {
    const uint64_t before = Count(Outcome::kCancelled);
    {
      const auto stub = wire::VllmEngine::NewStub(NewChannel());
      ClientContext context;
      auto reader = stub->Generate(&context, Request({0}, 100000, stream));
      EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() > 0; }));
      context.TryCancel();
      wire::GenerateResponse message;
      while (reader->Read(&message)) continue;
      reader->Finish();
    }
    EXPECT_TRUE(WaitUntilIdle());
    EXPECT_EQ(Count(Outcome::kCancelled), before + 1);
  }
}

TEST_F(EngineDoorTest, BadRequestsAreRefusedByName) {
  const auto refused = [&](const std::function<void(wire::GenerateRequest&)>& change) {
    wire::GenerateRequest request = Request({0}, 5);
    change(request);
    const Reply reply = Call(request);
    EXPECT_EQ(reply.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return reply.status.error_message();
  };
  using Request = wire::GenerateRequest;
  EXPECT_THAT(refused([](Request& r) { r.mutable_mm_inputs(); }), HasSubstr("mm_inputs"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_sampling_params()->set_logprobs(21); }),
              HasSubstr("logprobs = 21"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_sampling_params()->set_n(65); }),
              HasSubstr("n = 65"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_tokenized()->add_input_ids(100); }),
              HasSubstr("token id 100"));
  EXPECT_THAT(refused([](Request& r) { r.set_request_id(std::string(129, 'x')); }),
              HasSubstr("request_id"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_tokenized()->clear_input_ids(); }),
              HasSubstr("empty"));
  EXPECT_THAT(refused([](Request& r) { r.mutable_sampling_params()->set_temperature(-1); }),
              HasSubstr("temperature"));
}

TEST_F(EngineDoorTest, BytesThatAreNoRequestAreRefused) {
  std::string answer;
  const std::string service = "/vllm.grpc.engine.VllmEngine/";
  for (const char* method : {"Generate", "Abort", "GetLoads", "HealthCheck"}) {
    const grpc::Status status = CallPath(service + method, "\xFF\xFF\xFF", &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
  }
}

TEST_F(EngineDoorTest, MethodsThatAreNotServedSaySo) {
  std::string answer;
  for (const char* method : {"Embed", "StartProfile", "StopProfile", "SubscribeKvEvents"}) {
    const std::string path = std::string("/vllm.grpc.engine.VllmEngine/") + method;
    const grpc::Status status = CallPath(path, "", &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr(method));
  }
}

TEST_F(EngineDoorTest, FlushesTheCache) {
  ClientContext context;
  smg::grpc::common::FlushCacheResponse response;
  ASSERT_TRUE(engine_stub_->FlushCache(&context, {}, &response).ok());
  EXPECT_TRUE(response.success());
}

TEST_F(EngineDoorTest, SaysWhatItServes) {
  model_.eos_ids = {99};
  model_.defaults.temperature = 0.5f;
  ClientContext first, second, third;
  wire::GetModelInfoResponse model;
  ASSERT_TRUE(engine_stub_->GetModelInfo(&first, {}, &model).ok());
  EXPECT_EQ(model.served_model_name(), "toy");
  EXPECT_TRUE(model.is_generation());
  EXPECT_EQ(model.vocab_size(), FakeEngine::kVocab);
  EXPECT_EQ(model.max_context_length(), 1000u);
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(99));
  EXPECT_EQ(model.default_sampling_params_json(), "{\"temperature\":0.5}");
  wire::GetServerInfoResponse server;
  ASSERT_TRUE(engine_stub_->GetServerInfo(&second, {}, &server).ok());
  EXPECT_EQ(server.data_parallel_size(), 1);
  EXPECT_EQ(server.active_requests(), 0u);
  wire::GetLoadsRequest request;
  request.set_dp_rank(1);
  wire::GetLoadsResponse loads;
  EXPECT_EQ(engine_stub_->GetLoads(&third, request, &loads).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(EngineDoorTest, TheTokenizerComesInChunks) {
  std::string large(300000, 'x');  // that does not shrink
  std::mt19937_64 random(TestSeed());
  for (char& c : large) c = static_cast<char>(random());
  const auto read = [&] {
    ClientContext context;
    auto reader = engine_stub_->GetTokenizer(&context, {});
    std::vector<smg::grpc::common::GetTokenizerChunk> chunks(1);
    while (reader->Read(&chunks.back())) chunks.emplace_back();
    chunks.pop_back();
    return std::pair(chunks, reader->Finish());
  };
  EXPECT_EQ(read().second.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  std::ofstream(model_folder + "/tokenizer.json") << large;
  const auto [chunks, status] = read();
  ASSERT_TRUE(status.ok()) << status.error_message();
  size_t bytes = 0;
  for (const auto& chunk : chunks) {
    EXPECT_LE(chunk.data().size(), size_t{64} << 10);
    EXPECT_EQ(chunk.sha256().size(), &chunk == &chunks.back() ? 64u : 0u);
    bytes += chunk.data().size();
  }
  EXPECT_GT(bytes, 300000u);
}

TEST_F(EngineDoorTest, LoadsCountWhatRuns) {
  engine_.pace = milliseconds(2);
  ClientContext context;
  auto reader = engine_stub_->Generate(&context, Request({0}, 100000));
  wire::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  ClientContext asking;
  wire::GetLoadsResponse loads;
  ASSERT_TRUE(engine_stub_->GetLoads(&asking, {}, &loads).ok());
  ASSERT_EQ(loads.loads_size(), 1);
  EXPECT_EQ(loads.loads(0).num_running_reqs(), 1);
  EXPECT_GT(loads.loads(0).token_usage(), 0);
  EXPECT_EQ(loads.loads(0).max_running_requests(), static_cast<int>(kSlots));
  context.TryCancel();
  while (reader->Read(&message)) continue;
  reader->Finish();
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(EngineDoorTest, HealthFollowsTheServer) {
  const auto health = [&] {
    ClientContext context;
    wire::HealthCheckResponse response;
    EXPECT_TRUE(engine_stub_->HealthCheck(&context, {}, &response).ok());
    return response.healthy();
  };
  EXPECT_TRUE(health());
  server_->SetServing(false);
  EXPECT_FALSE(health());
  server_->SetServing(true);
  EXPECT_TRUE(health());
  scheduler_->StopAdmission();
  EXPECT_FALSE(health());
  EXPECT_EQ(Call(Request({0}, 5)).status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

class StalledEngineDoorTest : public EngineDoorTest {
 protected:
  StalledEngineDoorTest() : EngineDoorTest(milliseconds(300)) {}
};

TEST_F(StalledEngineDoorTest, AClientThatDoesNotReadIsCutOffAndHoldsUpNoOther) {
  wire::GenerateRequest request = Request({0}, 1000000);
  request.mutable_sampling_params()->set_logprobs(20);
  const auto narrow = wire::VllmEngine::NewStub(NarrowChannel());
  ClientContext context;
  auto stalled = narrow->Generate(&context, request);
  EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() > 0; }));
  const Reply other = Call(Request({1, 2}, 50));
  EXPECT_TRUE(other.status.ok()) << other.status.error_message();
  EXPECT_EQ(other.tokens.at(0), ExpectedTokens({1, 2}, 0, 50));
  EXPECT_TRUE(WaitUntilIdle());
  wire::GenerateResponse message;
  while (stalled->Read(&message)) continue;
  EXPECT_EQ(stalled->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace rivulet
