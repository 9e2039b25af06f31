// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A kernel that traps under the real server: requests fail, the server starts over in the same
// process and on the same ports, and a second fault within a minute ends it.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device/gpu_testing.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using std::chrono::seconds;

constexpr seconds kLimit{120};

class DeviceFailureEndToEnd : public testing::Test {
 protected:
  void SetUp() override { RIVULET_NEED_GPU(); }
  void TearDown() override { unsetenv("RIVULET_FAIL_CUDA_AT"); }

  void Start(const char* faults) {
    setenv("RIVULET_FAIL_CUDA_AT", faults, 1);
    auto server =
        ServerProcess::Start(SourcePath("models/tales"), {"--device=cuda", "--state-memory=1GiB"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    Connect();
  }
  void Connect() {
    const auto channel =
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel);
    sessions_ = v1::Sessions::NewStub(channel);
  }

  struct Stream {
    grpc::Status status;
    std::vector<uint32_t> tokens;
  };
  Stream Generate(uint32_t max_tokens, const std::string& session = "") {
    v1::GenerateRequest request;
    for (const uint32_t id : {5u, 6u, 7u}) request.mutable_token_ids()->add_ids(id);
    request.set_max_tokens(max_tokens);
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0);
    request.set_session_id(session);
    grpc::ClientContext context;
    auto reader = inference_->Generate(&context, request);
    Stream stream;
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      stream.tokens.insert(stream.tokens.end(), message.token_ids().begin(),
                           message.token_ids().end());
    }
    stream.status = reader->Finish();
    return stream;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
};

TEST_F(DeviceFailureEndToEnd, TheServerStartsOverAndServesTheSame) {
  ASSERT_NO_FATAL_FAILURE(Start("40"));
  const Stream before = Generate(10);
  ASSERT_TRUE(before.status.ok()) << before.status.error_message();
  v1::CreateSessionRequest create;
  create.set_id("talk");
  v1::Session session;
  grpc::ClientContext context;
  ASSERT_TRUE(sessions_->CreateSession(&context, create, &session).ok());
  ASSERT_TRUE(Generate(5, "talk").status.ok());

  const Stream failed = Generate(200);
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_FALSE(server_->process().WaitForLine("device_restarted", kLimit).empty())
      << server_->process().output();
  EXPECT_EQ(HttpGet(server_->http_address(), "/readyz").status, 200);
  const std::string page = HttpGet(server_->http_address(), "/metrics").body;
  EXPECT_EQ(Metric(page, "rivulet_device_failures_total"), 1);
  Connect();
  const Stream again = Generate(10);
  EXPECT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.tokens, before.tokens);
  EXPECT_EQ(Generate(5, "talk").status.error_code(), grpc::StatusCode::NOT_FOUND);
  const Exit exit = server_->Stop();
  EXPECT_EQ(exit.code, 0) << exit.output;
}

TEST_F(DeviceFailureEndToEnd, ASecondFaultWithinAMinuteEndsTheProcess) {
  ASSERT_NO_FATAL_FAILURE(Start("20,20"));
  EXPECT_EQ(Generate(100).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_FALSE(server_->process().WaitForLine("device_restarted", kLimit).empty())
      << server_->process().output();
  Connect();
  EXPECT_EQ(Generate(100).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  const Exit exit = server_->process().Wait(kLimit);
  EXPECT_EQ(exit.code, 1);
  EXPECT_FALSE(exit.killed);
  EXPECT_NE(exit.output.find("device_given_up"), std::string::npos) << exit.output;
}

}  // namespace
}  // namespace rivulet::e2e
