// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Several completions on a session, through the real server and the command line: the bits are
// those of the whole context as one prompt, the session goes on with the first completion, and the
// others are dropped or become sessions.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using Tokens = std::vector<uint32_t>;

struct Choice {
  Tokens tokens;
  std::vector<std::string> logprobs;  // serialized, to be compared bit for bit
  std::string fork_id;
};

class ChoicesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto server = ServerProcess::Start(SourcePath(GetParam()), {"--speculate=lookup"});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    const auto channel =
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::Inference::NewStub(channel);
    sessions_ = v1::Sessions::NewStub(channel);
    grpc::ClientContext context;
    v1::CreateSessionRequest request;
    request.set_id("talk");
    v1::Session session;
    ASSERT_TRUE(sessions_->CreateSession(&context, request, &session).ok());
  }
  void TearDown() override { EXPECT_EQ(server_->Stop().code, 0); }

  static v1::GenerateRequest Request(const Tokens& prompt, uint32_t completions) {
    v1::GenerateRequest request;
    request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
    request.set_max_tokens(20);
    request.set_n(completions);
    request.set_logprobs(2);
    request.mutable_sampling()->set_seed(7);
    request.mutable_stop()->set_ignore_eos(true);
    return request;
  }
  std::vector<Choice> Generate(const v1::GenerateRequest& request) {
    std::vector<Choice> choices(request.n());
    grpc::ClientContext context;
    auto reader = inference_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      Choice& choice = choices[message.index()];
      choice.tokens.insert(choice.tokens.end(), message.token_ids().begin(),
                           message.token_ids().end());
      for (const auto& each : message.logprobs()) {
        choice.logprobs.push_back(each.SerializeAsString());
      }
      choice.fork_id = message.fork_id();
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return choices;
  }
  v1::Session Get(const std::string& id) {
    grpc::ClientContext context;
    v1::GetSessionRequest request;
    request.set_id(id);
    v1::Session session;
    const grpc::Status status = sessions_->GetSession(&context, request, &session);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return session;
  }

  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Sessions::Stub> sessions_;
};

Tokens Some(size_t count, uint32_t first) {
  Tokens tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint32_t>((first + 7 * i) % 24);
  return tokens;
}

void ExpectSame(const Choice& a, const Choice& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logprobs, b.logprobs);
}

TEST_P(ChoicesTest, HaveTheBitsOfTheWholeContext) {
  const Tokens first = Some(37, 1), second = Some(21, 5);
  v1::GenerateRequest turn = Request(first, 1);
  turn.set_session_id("talk");
  Tokens context = first;
  const Tokens answer = Generate(turn)[0].tokens;
  context.insert(context.end(), answer.begin(), answer.end());
  context.insert(context.end(), second.begin(), second.end());

  turn = Request(second, 4);
  turn.set_session_id("talk");
  turn.set_keep_choices(true);
  const std::vector<Choice> choices = Generate(turn);
  const std::vector<Choice> whole = Generate(Request(context, 4));
  for (uint32_t i = 0; i < 4; ++i) {
    ExpectSame(choices[i], whole[i]);
    const std::string id = i == 0 ? "talk" : choices[i].fork_id;
    EXPECT_EQ(Get(id).position(), context.size() + 20);
    turn = Request(Some(3, i), 1);
    turn.set_session_id(id);
    Tokens all = context;
    all.insert(all.end(), choices[i].tokens.begin(), choices[i].tokens.end());
    const Tokens next = Some(3, i);
    all.insert(all.end(), next.begin(), next.end());
    ExpectSame(Generate(turn)[0], Generate(Request(all, 1))[0]);
  }
  EXPECT_EQ(Get(choices[1].fork_id).forked_from(), "talk");
  EXPECT_EQ(Get(choices[1].fork_id).forked_at(), context.size());
}

TEST_P(ChoicesTest, OnTheCommandLine) {
  const auto generate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {Binary("rivulet"), "generate", "--server",
                                          server_->address()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  };
  const std::string ids = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17";
  const Exit kept = generate({"--tokens", ids, "--session", "talk", "-n", "2", "-m", "4",
                              "--keep-choices", "--cache-salt", "me", "--report-cache"});
  EXPECT_EQ(kept.code, 0) << kept.output;
  EXPECT_NE(kept.output.find("completion 1: session "), std::string::npos) << kept.output;
  EXPECT_NE(kept.output.find("nothing reused: no prompt with this salt began so"),
            std::string::npos)
      << kept.output;
  const Exit again = generate({"--tokens", ids, "-m", "4", "--cache-salt", "me", "--report-cache"});
  EXPECT_NE(again.output.find("prefix cache: 16 tokens reused, 16 known"), std::string::npos)
      << again.output;
  const Exit alone = generate({"--tokens", ids, "-n", "2", "-m", "4", "--keep-choices"});
  EXPECT_EQ(alone.code, 1);
  EXPECT_NE(alone.output.find("set session_id"), std::string::npos) << alone.output;
}

// A linear mixer, and a hybrid with softmax attention and a window.
INSTANTIATE_TEST_SUITE_P(Models, ChoicesTest,
                         testing::Values("tests/parity/fixtures/hla_masked",
                                         "tests/parity/fixtures/softmax_window_hybrid"),
                         [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace rivulet::e2e
