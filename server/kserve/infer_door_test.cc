// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// KServe's protocol over a real channel, with FakeEngine behind it.
#include "server/kserve/infer_door.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kserve/grpc_service.grpc.pb.h"
#include "server/rpc/service_fixture.h"

namespace rivulet {
namespace {

namespace wire = ::inference;
using grpc::ClientContext;
using testing::ElementsAre;
using testing::HasSubstr;

GrpcDoors Doors(const ServiceContext& service) {
  GrpcDoors doors;
  doors.push_back(kserve::MakeDoor(service));
  return doors;
}

class InferDoorTest : public ServiceTest {
 protected:
  explicit InferDoorTest(Clock::duration stall_limit = seconds(300))
      : ServiceTest(stall_limit, -1, &Doors),
        infer_stub_(wire::GRPCInferenceService::NewStub(channel_)) {}

  static wire::ModelInferRequest Request(const std::vector<uint32_t>& prompt, int64_t max_tokens,
                                         const std::string& id = "") {
    wire::ModelInferRequest request;
    request.set_model_name("toy");
    request.set_id(id);
    auto& input = *request.add_inputs();
    input.set_name("input_ids");
    input.set_datatype("INT32");
    input.add_shape(static_cast<int64_t>(prompt.size()));
    for (const uint32_t token : prompt) {
      input.mutable_contents()->add_int_contents(static_cast<int32_t>(token));
    }
    (*request.mutable_parameters())["max_tokens"].set_int64_param(max_tokens);
    (*request.mutable_parameters())["ignore_eos"].set_bool_param(true);
    request.add_outputs()->set_name("output_ids");
    return request;
  }
  static wire::ModelInferRequest Streamed(wire::ModelInferRequest request) {
    auto& stream = *request.add_inputs();
    stream.set_name("stream");
    stream.set_datatype("BOOL");
    stream.add_shape(1);
    stream.mutable_contents()->add_bool_contents(true);
    return request;
  }
  static wire::ModelInferRequest InSequence(wire::ModelInferRequest request, int64_t id, bool start,
                                            bool end) {
    auto& parameters = *request.mutable_parameters();
    parameters["sequence_id"].set_int64_param(id);
    parameters["sequence_start"].set_bool_param(start);
    parameters["sequence_end"].set_bool_param(end);
    return request;
  }

  // The elements of output_ids.
  static std::vector<uint32_t> Tokens(const wire::ModelInferResponse& response) {
    std::vector<uint32_t> tokens;
    for (int i = 0; i < response.outputs_size(); ++i) {
      if (response.outputs(i).name() != "output_ids") continue;
      const std::string& bytes = response.raw_output_contents(i);
      for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
        tokens.push_back(static_cast<uint8_t>(bytes[at]) |
                         static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + 1])) << 8);
      }
    }
    return tokens;
  }

  grpc::Status Infer(const wire::ModelInferRequest& request,
                     std::vector<uint32_t>* tokens = nullptr, ClientContext* context = nullptr) {
    ClientContext own;
    wire::ModelInferResponse response;
    const grpc::Status status =
        infer_stub_->ModelInfer(context ? context : &own, request, &response);
    if (tokens != nullptr) *tokens = Tokens(response);
    return status;
  }

  struct Replies {
    std::map<std::string, std::vector<uint32_t>> tokens;  // by id
    std::map<std::string, int> finals;
    std::map<std::string, std::string> errors;
    std::vector<std::string> ended;  // ids, in this order
    grpc::Status status;
  };
  static void Add(const wire::ModelStreamInferResponse& response, Replies& replies) {
    const wire::ModelInferResponse& infer = response.infer_response();
    auto& tokens = replies.tokens[infer.id()];
    const std::vector<uint32_t> more = Tokens(infer);
    tokens.insert(tokens.end(), more.begin(), more.end());
    if (!response.error_message().empty()) replies.errors[infer.id()] = response.error_message();
    if (!infer.parameters().at("triton_final_response").bool_param()) return;
    ++replies.finals[infer.id()];
    replies.ended.push_back(infer.id());
  }
  // Sends all, then reads all.
  Replies InferAll(const std::vector<wire::ModelInferRequest>& requests) {
    ClientContext context;
    auto stream = infer_stub_->ModelStreamInfer(&context);
    for (const auto& request : requests) EXPECT_TRUE(stream->Write(request));
    stream->WritesDone();
    Replies replies;
    wire::ModelStreamInferResponse response;
    while (stream->Read(&response)) Add(response, replies);
    replies.status = stream->Finish();
    return replies;
  }

  std::unique_ptr<wire::GRPCInferenceService::Stub> infer_stub_;
};

TEST_F(InferDoorTest, GeneratesTheTokensOfTheNativeService) {
  std::vector<uint32_t> tokens;
  const grpc::Status status = Infer(Request({0, 1, 2}, 20), &tokens);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(tokens, ExpectedTokens({0, 1, 2}, 0, 20));
  const Replies replies =
      InferAll({Streamed(Request({0, 1, 2}, 20, "streamed")), Request({0, 1, 2}, 20, "whole")});
  ASSERT_TRUE(replies.status.ok()) << replies.status.error_message();
  EXPECT_EQ(replies.tokens.at("streamed"), tokens);
  EXPECT_EQ(replies.tokens.at("whole"), tokens);
  EXPECT_EQ(replies.finals, (std::map<std::string, int>{{"streamed", 1}, {"whole", 1}}));
}

TEST_F(InferDoorTest, TextComesBehindItsPrompt) {
  wire::ModelInferRequest request;
  request.set_model_name("toy");
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  request.add_raw_input_contents(std::string("\3\0\0\0abc", 7));
  (*request.mutable_parameters())["max_tokens"].set_int64_param(5);
  ClientContext context;
  wire::ModelInferResponse response;
  const grpc::Status status = infer_stub_->ModelInfer(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.raw_output_contents(0).substr(4, 3), "abc");
  EXPECT_TRUE(response.parameters().at("triton_final_response").bool_param());
}

TEST_F(InferDoorTest, ASequenceIsASessionFromItsStartToItsEnd) {
  std::vector<uint32_t> first, second, third;
  ASSERT_TRUE(Infer(InSequence(Request({0, 1}, 5), 7, true, false), &first).ok());
  v1::Session session;
  EXPECT_TRUE(Get("sequence:7", &session).ok());
  EXPECT_EQ(session.position(), 7u);
  ASSERT_TRUE(Infer(InSequence(Request({2}, 5), 7, false, false), &second).ok());
  std::vector<uint32_t> context = std::vector<uint32_t>{0, 1} + first + std::vector<uint32_t>{2};
  EXPECT_EQ(second, ExpectedTokens(context, 0, 5));
  ASSERT_TRUE(Infer(InSequence(Request({3}, 5), 7, false, true), &third).ok());
  context = context + second + std::vector<uint32_t>{3};
  EXPECT_EQ(third, ExpectedTokens(context, 0, 5));
  EXPECT_EQ(sessions_.List("", 10).size(), 0u);
  EXPECT_EQ(Infer(InSequence(Request({3}, 5), 7, false, true)).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(InferDoorTest, ASequenceThatStartsAgainBeginsAnew) {
  std::vector<uint32_t> tokens;
  ASSERT_TRUE(Infer(InSequence(Request({0, 1}, 5), 7, true, false)).ok());
  ASSERT_TRUE(Infer(InSequence(Request({2}, 5), 7, true, true), &tokens).ok());
  EXPECT_EQ(tokens, ExpectedTokens({2}, 0, 5));
  EXPECT_EQ(sessions_.List("", 10).size(), 0u);
}

TEST_F(InferDoorTest, ASequenceWhoseStartIsRefusedIsGone) {
  EXPECT_EQ(Infer(InSequence(Request({1000}, 5), 7, true, false)).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(sessions_.List("", 10).size(), 0u);
}

TEST_F(InferDoorTest, RequestsOfASequenceOnOneStreamRunOneAfterTheOther) {
  std::vector<wire::ModelInferRequest> requests;
  for (int64_t sequence : {7, 8}) {
    for (int i = 0; i < 4; ++i) {
      const std::string id = std::to_string(sequence) + "." + std::to_string(i);
      requests.push_back(Streamed(
          InSequence(Request({static_cast<uint32_t>(sequence)}, 5, id), sequence, i == 0, i == 3)));
    }
  }
  engine_.pace = milliseconds(2);
  const Replies replies = InferAll(requests);
  ASSERT_TRUE(replies.status.ok()) << replies.status.error_message();
  EXPECT_TRUE(replies.errors.empty());
  for (uint32_t sequence : {7u, 8u}) {
    std::vector<uint32_t> context;
    for (int i = 0; i < 4; ++i) {
      context.push_back(sequence);
      const std::vector<uint32_t> expected = ExpectedTokens(context, 0, 5);
      EXPECT_EQ(replies.tokens.at(std::to_string(sequence) + "." + std::to_string(i)), expected);
      context = context + expected;
    }
  }
  EXPECT_EQ(sessions_.List("", 10).size(), 0u);
}

TEST_F(InferDoorTest, TwoTurnsAtOnceFromTwoStreamsAreOneTooMany) {
  engine_.pace = milliseconds(2);
  ClientContext context;
  auto stream = infer_stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(Streamed(InSequence(Request({0}, 100000), 7, true, false))));
  wire::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(Infer(InSequence(Request({1}, 5), 7, false, false)).error_code(),
            grpc::StatusCode::ABORTED);
  const Replies replies = InferAll({InSequence(Request({1}, 5, "x"), 7, true, false)});
  EXPECT_TRUE(replies.status.ok());
  EXPECT_THAT(replies.errors.at("x"), testing::StartsWith("ABORTED: "));
  EXPECT_EQ(replies.finals.at("x"), 1);
  context.TryCancel();
  while (stream->Read(&response)) continue;
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(InferDoorTest, AnErrorIsAResponseAndTheStreamGoesOn) {
  wire::ModelInferRequest other = Request({0}, 5, "model");
  other.set_model_name("other");
  const Replies replies = InferAll({other, Request({1000}, 5, "token"), Request({0}, 5, "good")});
  EXPECT_TRUE(replies.status.ok()) << replies.status.error_message();
  EXPECT_THAT(replies.errors.at("model"), HasSubstr("NOT_FOUND: the model 'other'"));
  EXPECT_THAT(replies.errors.at("token"), HasSubstr("INVALID_ARGUMENT: "));
  EXPECT_EQ(replies.tokens.at("good"), ExpectedTokens({0}, 0, 5));
  EXPECT_EQ(replies.finals.size(), 3u);
}

TEST_F(InferDoorTest, MoreRequestsThanAStreamReadsAtOnce) {
  std::vector<wire::ModelInferRequest> requests;
  for (int i = 0; i < 600; ++i) requests.push_back(Request({1000}, 5, std::to_string(i)));
  ClientContext context;
  auto stream = infer_stub_->ModelStreamInfer(&context);
  Replies replies;
  std::thread writer([&] {
    for (const auto& request : requests) EXPECT_TRUE(stream->Write(request));
    stream->WritesDone();
  });
  wire::ModelStreamInferResponse response;
  while (stream->Read(&response)) Add(response, replies);
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(replies.finals.size(), 600u);
}

TEST_F(InferDoorTest, ATimeoutIsADeadline) {
  engine_.pace = milliseconds(2);
  wire::ModelInferRequest request = Request({0}, 100000, "late");
  (*request.mutable_parameters())["timeout"].set_int64_param(50000);
  EXPECT_EQ(Infer(request).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  const Replies replies = InferAll({Streamed(request), Request({0}, 5, "good")});
  EXPECT_TRUE(replies.status.ok());
  EXPECT_THAT(replies.errors.at("late"), HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_EQ(replies.finals.at("late"), 1);
  EXPECT_EQ(replies.tokens.at("good").size(), 5u);
  ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + milliseconds(100));
  EXPECT_EQ(Infer(Request({0}, 100000), nullptr, &context).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitUntilIdle());
}

TEST_F(InferDoorTest, AClientThatVanishesEndsItsWork) {
  engine_.pace = milliseconds(2);
  {
    const auto stub = wire::GRPCInferenceService::NewStub(NewChannel());
    ClientContext context;
    auto stream = stub->ModelStreamInfer(&context);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(stream->Write(InSequence(Request({0}, 100000), 7, i == 0, false)));
    }
    EXPECT_TRUE(stream->Write(Streamed(Request({0}, 100000))));
    EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 2; }));
    context.TryCancel();
    wire::ModelStreamInferResponse response;
    while (stream->Read(&response)) continue;
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(WaitUntilIdle());
  EXPECT_TRUE(Eventually([&] { return Count(Outcome::kCancelled) == 4; }));
}

TEST_F(InferDoorTest, ADrainEndsIdleStreamsAndLetsTurnsEnd) {
  ClientContext idle_context, busy_context;
  auto idle = infer_stub_->ModelStreamInfer(&idle_context);
  auto busy = infer_stub_->ModelStreamInfer(&busy_context);
  engine_.pace = milliseconds(2);
  ASSERT_TRUE(busy->Write(Streamed(Request({0}, 40, "busy"))));
  Replies replies;
  wire::ModelStreamInferResponse response;
  ASSERT_TRUE(busy->Read(&response));
  Add(response, replies);
  scheduler_->StopAdmission();
  server_->EndIdleStreams();
  EXPECT_FALSE(idle->Read(&response));
  EXPECT_EQ(idle->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  while (busy->Read(&response)) Add(response, replies);
  EXPECT_EQ(busy->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(replies.tokens.at("busy"), ExpectedTokens({0}, 0, 40));
  ClientContext late_context;
  auto late = infer_stub_->ModelStreamInfer(&late_context);
  EXPECT_FALSE(late->Read(&response));
  EXPECT_EQ(late->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(InferDoorTest, BytesThatAreNoRequestAreRefused) {
  std::string answer;
  const std::string service = "/inference.GRPCInferenceService/";
  for (const char* method : {"ModelInfer", "ModelMetadata", "ModelStatistics", "ServerLive"}) {
    EXPECT_EQ(CallPath(service + method, "\xFF\xFF\xFF", &answer).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << method;
  }
  for (const char* method :
       {"RepositoryModelLoad", "RepositoryModelUnload", "TraceSetting", "LogSettings",
        "SystemSharedMemoryRegister", "CudaSharedMemoryRegister"}) {
    const grpc::Status status = CallPath(service + method, "", &answer);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
    EXPECT_FALSE(status.error_message().empty());
  }
  for (const char* method : {"SystemSharedMemoryUnregister", "CudaSharedMemoryUnregister",
                             "SystemSharedMemoryStatus", "CudaSharedMemoryStatus"}) {
    EXPECT_TRUE(CallPath(service + method, "", &answer).ok()) << method;
    EXPECT_EQ(CallPath(service + method, "\x0A\x01x", &answer).error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
}

TEST_F(InferDoorTest, AStreamOfOtherBytesEndsWithAnError) {
  grpc::GenericStub stub(channel_);
  ClientContext context;
  grpc::CompletionQueue queue;
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  auto call =
      stub.PrepareCall(&context, "/inference.GRPCInferenceService/ModelStreamInfer", &queue);
  call->StartCall(nullptr);
  EXPECT_TRUE(next());
  const grpc::Slice slice("\xFF\xFF\xFF");
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  EXPECT_TRUE(next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(next());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(InferDoorTest, SaysWhatItServes) {
  const auto call = [](auto method, auto request, auto response) {
    ClientContext context;
    EXPECT_TRUE(method(&context, request, &response).ok());
    return response;
  };
  const auto bind = [&](auto method) {
    return [this, method](auto... arguments) { return (infer_stub_.get()->*method)(arguments...); };
  };
  using Stub = wire::GRPCInferenceService::Stub;
  EXPECT_TRUE(
      call(bind(&Stub::ServerLive), wire::ServerLiveRequest(), wire::ServerLiveResponse()).live());
  const auto ready = [&] {
    return call(bind(&Stub::ServerReady), wire::ServerReadyRequest(), wire::ServerReadyResponse())
        .ready();
  };
  EXPECT_TRUE(ready());
  wire::ModelReadyRequest model;
  model.set_name("toy");
  EXPECT_TRUE(call(bind(&Stub::ModelReady), model, wire::ModelReadyResponse()).ready());
  model.set_version("2");
  EXPECT_FALSE(call(bind(&Stub::ModelReady), model, wire::ModelReadyResponse()).ready());
  wire::ModelMetadataRequest metadata;
  metadata.set_name("toy");
  const auto described = call(bind(&Stub::ModelMetadata), metadata, wire::ModelMetadataResponse());
  EXPECT_EQ(described.inputs(0).name(), "text_input");
  EXPECT_EQ(described.outputs(0).name(), "text_output");
  wire::ModelConfigRequest config;
  config.set_name("toy");
  EXPECT_TRUE(call(bind(&Stub::ModelConfig), config, wire::ModelConfigResponse())
                  .config()
                  .model_transaction_policy()
                  .decoupled());
  ASSERT_TRUE(Infer(Request({0}, 5)).ok());
  EXPECT_TRUE(Eventually([&] { return Count(Outcome::kLength) == 1; }));
  const auto statistics = call(bind(&Stub::ModelStatistics), wire::ModelStatisticsRequest(),
                               wire::ModelStatisticsResponse());
  EXPECT_EQ(statistics.model_stats(0).inference_stats().success().count(), 1u);
  const auto index = call(bind(&Stub::RepositoryIndex), wire::RepositoryIndexRequest(),
                          wire::RepositoryIndexResponse());
  EXPECT_EQ(index.models(0).state(), "READY");
  server_->SetServing(false);
  EXPECT_FALSE(ready());
}

class StalledInferDoorTest : public InferDoorTest {
 protected:
  StalledInferDoorTest() : InferDoorTest(milliseconds(300)) {}
};

TEST_F(StalledInferDoorTest, AStreamThatIsNotReadIsCutOffAndHoldsUpNoOther) {
  const auto narrow = wire::GRPCInferenceService::NewStub(NarrowChannel());
  ClientContext context;
  auto stalled = narrow->ModelStreamInfer(&context);
  ASSERT_TRUE(stalled->Write(Streamed(Request({0}, 10000000))));
  ASSERT_TRUE(stalled->Write(Streamed(Request({1}, 10000000))));
  EXPECT_TRUE(Eventually([&] { return metrics_.requests_running.value() == 2; }));
  std::vector<uint32_t> tokens;
  ASSERT_TRUE(Infer(Request({1, 2}, 50), &tokens).ok());
  EXPECT_EQ(tokens, ExpectedTokens({1, 2}, 0, 50));
  // The call ends, though its client, who must read to let a write end, has done nothing.
  EXPECT_TRUE(Eventually([&] { return calls_.WaitForNone(Clock::now()) == 0; }));
  wire::ModelStreamInferResponse response;
  while (stalled->Read(&response)) continue;
  EXPECT_EQ(stalled->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace rivulet
