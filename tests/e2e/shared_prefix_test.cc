// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Prompts that begin alike, through the real server: what was computed is found again, the answers
// are those of a server without the cache, and bad fields and flags are refused.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/test_seed.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

using Tokens = std::vector<uint32_t>;

// Softmax attention and a linear mixer with random weights.
std::string Hybrid() { return SourcePath("tests/parity/fixtures/softmax_window_hybrid"); }
std::string SmallModel() { return SourcePath("tests/parity/fixtures/hla_masked"); }
constexpr uint32_t kVocab = 24;

struct Answer {
  grpc::Status status;
  Tokens tokens;
  std::vector<std::string> logprobs;  // serialized, to be compared bit for bit
  v1::GenerateResponse last;
  uint32_t cached() const { return last.usage().cached_tokens(); }
};

class Peer {
 public:
  explicit Peer(const std::string& model, const std::vector<std::string>& flags = {}) {
    auto server = ServerProcess::Start(model, flags);
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    stub_ = v1::Inference::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }
  ~Peer() {
    const Exit exit = server_->Stop();
    EXPECT_EQ(exit.code, 0) << exit.output;
  }
  Answer Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    auto reader = stub_->Generate(&context, request);
    Answer answer;
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      answer.tokens.insert(answer.tokens.end(), message.token_ids().begin(),
                           message.token_ids().end());
      for (const auto& each : message.logprobs()) {
        answer.logprobs.push_back(each.SerializeAsString());
      }
      answer.last = message;
    }
    answer.status = reader->Finish();
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer;
  }
  grpc::Status Refusal(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    auto reader = stub_->Generate(&context, request);
    v1::GenerateResponse message;
    while (reader->Read(&message)) continue;
    return reader->Finish();
  }
  double MetricOf(const std::string& name) {
    return Metric(HttpGet(server_->http_address(), "/metrics").body, name);
  }

 private:
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

v1::GenerateRequest Request(const Tokens& prompt, uint32_t max_tokens = 8) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request.set_max_tokens(max_tokens);
  request.mutable_sampling()->set_seed(7);
  request.mutable_stop()->set_ignore_eos(true);
  request.set_logprobs(2);
  request.set_report_cache(true);
  return request;
}

Tokens Some(size_t count, uint32_t first) {
  Tokens tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<uint32_t>((first + 7 * i + i / 5) % kVocab);
  }
  return tokens;
}

TEST(SharedPrefixTest, ReportsWhatItFound) {
  Peer peer(SmallModel());
  const Answer first = peer.Generate(Request(Some(100, 1)));
  EXPECT_EQ(first.last.cache().miss(), v1::CACHE_MISS_UNKNOWN);
  const Answer second = peer.Generate(Request(Some(100, 1)));
  EXPECT_EQ(second.last.cache().miss(), v1::CACHE_MISS_UNSPECIFIED);
  EXPECT_EQ(second.last.cache().reused_tokens(), 96u);
  EXPECT_EQ(second.last.cache().known_tokens(), 96u);
  EXPECT_EQ(second.cached(), 96u);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.logprobs, first.logprobs);

  v1::GenerateRequest salted = Request(Some(100, 1));
  salted.set_cache_salt("tenant");
  EXPECT_EQ(peer.Generate(salted).last.cache().miss(), v1::CACHE_MISS_UNKNOWN);
  EXPECT_EQ(peer.Generate(salted).cached(), 96u);

  v1::GenerateRequest scored = Request(Some(100, 1));
  scored.set_prompt_logprobs(1);
  EXPECT_EQ(peer.Generate(scored).last.cache().miss(), v1::CACHE_MISS_PROMPT_LOGPROBS);
  EXPECT_EQ(peer.Generate(Request(Some(16, 5))).last.cache().miss(), v1::CACHE_MISS_SHORT);
  v1::GenerateRequest silent = Request(Some(100, 1));
  silent.set_report_cache(false);
  EXPECT_FALSE(peer.Generate(silent).last.has_cache());
  EXPECT_EQ(peer.MetricOf("rivulet_prefix_cache_hits_total"), 3);
  EXPECT_EQ(peer.MetricOf("rivulet_prefix_cache_tokens_reused_total"), 3 * 96);
}

TEST(SharedPrefixTest, CanBeOff) {
  Peer peer(SmallModel(), {"--prefix-cache=off"});
  for (int i = 0; i < 2; ++i) {
    const Answer answer = peer.Generate(Request(Some(100, 1)));
    EXPECT_EQ(answer.last.cache().miss(), v1::CACHE_MISS_OFF);
    EXPECT_EQ(answer.cached(), 0u);
  }
  EXPECT_EQ(peer.MetricOf("rivulet_prefix_cache_tokens"), 0);
}

TEST(SharedPrefixTest, SixtyFourClientsWithOnePromptPayOnePrefill) {
  Peer peer(SourcePath("models/tales"), {"--max-queue=64", "--state-memory=1GiB"});
  const Tokens prompt = Some(4096, 3);
  std::vector<std::thread> clients;
  std::vector<Answer> answers(64);
  for (Answer& answer : answers) {
    clients.emplace_back([&] { answer = peer.Generate(Request(prompt)); });
  }
  for (std::thread& client : clients) client.join();
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.tokens, answers[0].tokens);
    EXPECT_EQ(answer.logprobs, answers[0].logprobs);
  }
  const double computed = peer.MetricOf("rivulet_prompt_tokens_total{source=\"computed\"}");
  // One that arrives in the last moments of the first may have to begin at 2048.
  EXPECT_LE(computed, 4096 + 63 * 16 + 2048);
  EXPECT_GE(computed, 4096 + 63 * 16);
}

// Prompts of a random tree, several at once, on a server with the cache and one without.
TEST(SharedPrefixTest, AnswersAreThoseOfAServerWithoutIt) {
  std::mt19937_64 random(TestSeed());
  for (const std::string& model : {Hybrid(), SmallModel()}) {
    Peer with(model, {"--state-memory=4MiB", "--prefix-cache=2MiB"});
    Peer without(model, {"--prefix-cache=off"});
    std::vector<Tokens> contexts = {Some(40, 0)};
    for (int round = 0; round < 25; ++round) {
      std::vector<v1::GenerateRequest> requests;
      for (int i = 0; i < 6; ++i) {
        Tokens prompt = contexts[random() % contexts.size()];
        prompt.resize(random() % (prompt.size() + 1));
        for (uint64_t more = 1 + random() % 50; more > 0; --more) {
          prompt.push_back(static_cast<uint32_t>(random() % kVocab));
        }
        requests.push_back(Request(prompt, 1 + static_cast<uint32_t>(random() % 20)));
        requests.back().mutable_sampling()->set_seed(random());
        if (random() % 4 == 0) requests.back().set_cache_salt("another");
      }
      std::vector<Answer> answers(requests.size());
      std::vector<std::thread> clients;
      for (size_t i = 0; i < requests.size(); ++i) {
        clients.emplace_back([&, i] { answers[i] = with.Generate(requests[i]); });
      }
      for (std::thread& client : clients) client.join();
      for (size_t i = 0; i < requests.size(); ++i) {
        const Answer expected = without.Generate(requests[i]);
        ASSERT_EQ(answers[i].tokens, expected.tokens);
        ASSERT_EQ(answers[i].logprobs, expected.logprobs);
        const auto& ids = requests[i].token_ids().ids();
        Tokens context(ids.begin(), ids.end());
        context.insert(context.end(), expected.tokens.begin(), expected.tokens.end());
        contexts.push_back(context);
      }
    }
    EXPECT_GT(with.MetricOf("rivulet_prefix_cache_hits_total"), 20);
  }
}

TEST(SharedPrefixTest, ALongSaltIsRefused) {
  Peer peer(SmallModel());
  v1::GenerateRequest request = Request(Some(20, 1));
  request.set_cache_salt(std::string(256, 's'));
  EXPECT_TRUE(peer.Generate(request).status.ok());
  for (const size_t bytes : {size_t{257}, size_t{1} << 20}) {
    request.set_cache_salt(std::string(bytes, 's'));
    const grpc::Status status = peer.Refusal(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_NE(status.error_message().find("cache_salt = " + std::to_string(bytes)),
              std::string::npos)
        << status.error_message();
  }
}

TEST(SharedPrefixTest, LargerThanMemoryIsRefused) {
  const Exit exit =
      RunProgram({Binary("rivulet-server"), "--model=" + SmallModel(), "--state-memory=1MiB",
                  "--prefix-cache=2MiB", "--listen=127.0.0.1:0", "--http=127.0.0.1:0"});
  EXPECT_EQ(exit.code, 1);
  EXPECT_NE(exit.output.find("--prefix-cache is 2097152 bytes"), std::string::npos) << exit.output;
  EXPECT_NE(exit.output.find("--state-memory"), std::string::npos) << exit.output;
}

}  // namespace
}  // namespace rivulet::e2e
