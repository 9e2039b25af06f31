// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests of the services: all of the server over a real gRPC channel, with FakeEngine behind it.
#ifndef RIVULET_SERVER_RPC_SERVICE_FIXTURE_H_
#define RIVULET_SERVER_RPC_SERVICE_FIXTURE_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "server/rpc/grpc_server.h"
#include "server/scheduler/engine_loop.h"
#include "server/scheduler/test_support.h"

namespace rivulet {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Slow enough for streams to be cancelled while they run, and fails on request.
class PacedEngine : public FakeEngine {
 public:
  explicit PacedEngine(uint32_t sessions) : FakeEngine(sessions) {
    fail_row = [this](const StepRow&) {
      return fails ? absl::InternalError("no luck") : absl::OkStatus();
    };
  }
  StepTicket Launch(const StepPlan& plan) override {
    std::this_thread::sleep_for(pace.load());
    return FakeEngine::Launch(plan);
  }
  // Set by the test while the engine runs.
  std::atomic<milliseconds> pace{milliseconds(0)};
  std::atomic<bool> fails{false};
};

// Runs out of memory, or waits, when a test says so.
class ControlledTokenizer : public FakeTokenizer {
 public:
  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override {
    if (no_memory_in_encode) throw std::bad_alloc();
    entered = true;
    while (hold_encode) std::this_thread::yield();
    return FakeTokenizer::EncodeMarked(text, plain);
  }
  std::string_view TokenBytes(uint32_t id) const override {
    if (no_memory_in_bytes) throw std::bad_alloc();
    return FakeTokenizer::TokenBytes(id);
  }
  std::atomic<bool> no_memory_in_encode{false}, no_memory_in_bytes{false}, hold_encode{false};
  mutable std::atomic<bool> entered{false};  // EncodeMarked was called
};

class ServiceTest : public testing::Test {
 protected:
  static constexpr uint32_t kSlots = 4;

  explicit ServiceTest(Clock::duration stall_limit = seconds(300), int64_t bos_id = -1) {
    model_.info.set_name("toy");
    if (bos_id >= 0) model_.begin_ids = {static_cast<uint32_t>(bos_id)};
    model_.info.set_state_bytes_per_session(1000);
    model_.info.set_fold_interval(engine_.capacity().fold_interval);
    model_.info.set_vocab_size(FakeEngine::kVocab);
    model_.tokenizer = &request_tokenizer_;
    SchedulerOptions options;
    options.max_queue = 2;
    options.keep_positions = 2;
    options.stall_limit = stall_limit;
    options.tokenizer = &tokenizer_;
    scheduler_ = std::make_unique<Scheduler>(engine_, sessions_, dispatcher_, metrics_, options);
    loop_ = std::make_unique<EngineLoop>(engine_, *scheduler_);
    context_ = std::make_unique<ServiceContext>(ServiceContext{
        model_, *scheduler_, sessions_, pool_, metrics_, calls_, /*max_prompt=*/1000});
    auto server = GrpcServer::Start("127.0.0.1", 0, *context_);
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

  uint64_t Count(Outcome outcome) const {
    return metrics_.requests[static_cast<size_t>(outcome)].value();
  }
  // Polls until `done`, which the server brings about soon after what a client sees.
  static bool Eventually(const std::function<bool()>& done) {
    const TimePoint limit = Clock::now() + seconds(20);
    while (!done()) {
      if (Clock::now() > limit) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }
  bool WaitUntilIdle() { return scheduler_->WaitUntilIdle(Clock::now() + seconds(10)); }

  FakeTokenizer tokenizer_;                // the scheduler's
  ControlledTokenizer request_tokenizer_;  // the calls'
  PacedEngine engine_{kSlots};
  Metrics metrics_;
  CallCount calls_;
  SessionTable sessions_{{}, metrics_};
  ServedModel model_;
  Dispatcher dispatcher_;
  WorkerPool pool_{2, 100};
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<ServiceContext> context_;
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
