// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A server and a client of it, for tests that compare what requests get. Anything that goes wrong
// with the server itself is a failure of the test.
#ifndef RIVULET_TESTS_E2E_PEER_H_
#define RIVULET_TESTS_E2E_PEER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {

using Tokens = std::vector<uint32_t>;

// What a request for one completion got.
struct Turn {
  grpc::Status status;
  std::string text;
  Tokens tokens;
  std::vector<std::string> logprobs, prompt_logprobs;  // serialized, to be compared bit for bit
  v1::GenerateResponse first, last;

  uint32_t cached() const { return last.usage().cached_tokens(); }

  void Add(const v1::GenerateResponse& message) {
    if (first.request_id().empty()) first = message;
    text += message.text();
    tokens.insert(tokens.end(), message.token_ids().begin(), message.token_ids().end());
    for (const auto& each : message.logprobs()) logprobs.push_back(each.SerializeAsString());
    for (const auto& each : message.prompt_logprobs()) {
      prompt_logprobs.push_back(each.SerializeAsString());
    }
    last = message;
  }
};

// The destructor stops the server and waits for its end. The stubs may be used from any number of
// threads at once.
class Peer {
 public:
  explicit Peer(const std::string& model, const std::vector<std::string>& flags = {}) {
    auto server = ServerProcess::Start(model, flags);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    const auto channel =
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    inference = v1::Inference::NewStub(channel);
    sessions = v1::Sessions::NewStub(channel);
  }
  ~Peer() {
    const Exit exit =
        terminated_ ? server_->process().Wait(std::chrono::seconds(60)) : server_->Stop();
    EXPECT_EQ(exit.code, 0) << exit.output;
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  Turn Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    auto reader = inference->Generate(&context, request);
    Turn turn;
    v1::GenerateResponse message;
    while (reader->Read(&message)) turn.Add(message);
    turn.status = reader->Finish();
    return turn;
  }

  // Begins what the destructor waits for.
  void Terminate() {
    terminated_ = true;
    server_->process().Signal(SIGTERM);
  }

  double MetricOf(const std::string& name) {
    return Metric(HttpGet(server_->http_address(), "/metrics").body, name);
  }

  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Sessions::Stub> sessions;

 private:
  std::unique_ptr<ServerProcess> server_;
  bool terminated_ = false;
};

}  // namespace rivulet::e2e

#endif  // RIVULET_TESTS_E2E_PEER_H_
