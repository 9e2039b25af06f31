// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the services: all of the server over a real gRPC channel, with FakeEngine behind it.
#ifndef RIVULET_SERVER_RPC_SERVICE_FIXTURE_H_
#define RIVULET_SERVER_RPC_SERVICE_FIXTURE_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "server/rpc/grpc_server.h"
#include "server/service/service_fixture.h"

namespace rivulet {

class ServiceTest : public ServiceStack {
 protected:
  using MakeDoors = GrpcDoors (*)(const ServiceContext&);

  explicit ServiceTest(Clock::duration stall_limit = seconds(300), int64_t bos_id = -1,
                       MakeDoors doors = nullptr)
      : ServiceStack(stall_limit, bos_id) {
    auto server =
        GrpcServer::Start("127.0.0.1", 0, *context_,
                          /*tls=*/nullptr, doors == nullptr ? GrpcDoors() : doors(*context_));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = "127.0.0.1:" + std::to_string(server_->port());
    channel_ = NewChannel();
    stub_ = v1::Inference::NewStub(channel_);
    sessions_stub_ = v1::Sessions::NewStub(channel_);
  }
  ~ServiceTest() override {
    scheduler_->AbortAll(absl::UnavailableError("test ends"));
    server_->Shutdown(seconds(2));
  }

  std::shared_ptr<grpc::Channel> NewChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  }

  // Of a client that takes in little more than it reads.
  std::shared_ptr<grpc::Channel> NarrowChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1 << 10);
    return grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  }

  struct Stream {
    std::vector<v1::GenerateResponse> messages;
    grpc::Status status;
    const v1::Usage& usage() const { return messages.back().usage(); }
    std::vector<uint32_t> tokens(uint32_t index = 0) const {
      std::vector<uint32_t> tokens;
      for (const auto& message : messages) {
        if (message.index() != index) continue;
        tokens.insert(tokens.end(), message.token_ids().begin(), message.token_ids().end());
      }
      return tokens;
    }
  };

  Stream Generate(const v1::GenerateRequest& request, grpc::ClientContext* context = nullptr) {
    grpc::ClientContext own;
    Stream stream;
    auto reader = stub_->Generate(context ? context : &own, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) stream.messages.push_back(message);
    stream.status = reader->Finish();
    return stream;
  }

  // A call with bytes, among them such as no client library would send.
  grpc::Status CallPath(const std::string& path, const std::string& bytes, std::string* answer) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::Slice slice(bytes);
    auto call = stub.PrepareUnaryCall(&context, path, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer response;
    grpc::Status status;
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    grpc::Slice whole;
    if (status.ok() && response.DumpToSingleSlice(&whole).ok()) {
      answer->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
    }
    return status;
  }
  grpc::Status CallRaw(const std::string& method, const std::string& bytes) {
    std::string answer;
    return CallPath("/rivulet.v1.Inference/" + method, bytes, &answer);
  }

  grpc::Status Create(const std::string& id, const std::string& name = "",
                      v1::Session* session = nullptr) {
    grpc::ClientContext context;
    v1::CreateSessionRequest request;
    request.set_id(id);
    request.set_name(name);
    v1::Session ignored;
    return sessions_stub_->CreateSession(&context, request, session ? session : &ignored);
  }
  grpc::Status Get(const std::string& id, v1::Session* session) {
    grpc::ClientContext context;
    v1::GetSessionRequest request;
    request.set_id(id);
    return sessions_stub_->GetSession(&context, request, session);
  }
  grpc::Status Delete(const std::string& id) {
    grpc::ClientContext context;
    v1::DeleteSessionRequest request;
    request.set_id(id);
    v1::DeleteSessionResponse response;
    return sessions_stub_->DeleteSession(&context, request, &response);
  }

  std::unique_ptr<GrpcServer> server_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::unique_ptr<v1::Sessions::Stub> sessions_stub_;
};

inline std::vector<uint32_t> operator+(std::vector<uint32_t> a, const std::vector<uint32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline v1::GenerateRequest MakeProto(const std::string& prompt, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.set_max_tokens(max_tokens);
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

inline v1::GenerateRequest TurnOf(const std::string& session, const std::string& prompt,
                                  uint32_t max_tokens) {
  v1::GenerateRequest request = MakeProto(prompt, max_tokens);
  request.set_session_id(session);
  return request;
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_RPC_SERVICE_FIXTURE_H_
