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
#include "tests/e2e/peer.h"

namespace rivulet::e2e {
namespace {

// Softmax attention and a linear mixer with random weights.
std::string Hybrid() { return SourcePath("tests/parity/fixtures/softmax_window_hybrid"); }
std::string SmallModel() { return SourcePath("tests/parity/fixtures/hla_masked"); }
constexpr uint32_t kVocab = 24;

Turn Answered(Peer& peer, const v1::GenerateRequest& request) {
  Turn turn = peer.Generate(request);
  EXPECT_TRUE(turn.status.ok()) << turn.status.error_message();
  return turn;
}

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
  const Turn first = Answered(peer, Request(Some(100, 1)));
  EXPECT_EQ(first.last.cache().miss(), v1::CACHE_MISS_UNKNOWN);
  const Turn second = Answered(peer, Request(Some(100, 1)));
  EXPECT_EQ(second.last.cache().miss(), v1::CACHE_MISS_UNSPECIFIED);
  EXPECT_EQ(second.last.cache().reused_tokens(), 96u);
  EXPECT_EQ(second.last.cache().known_tokens(), 96u);
  EXPECT_EQ(second.cached(), 96u);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_EQ(second.logprobs, first.logprobs);

  v1::GenerateRequest salted = Request(Some(100, 1));
  salted.set_cache_salt("tenant");
  EXPECT_EQ(Answered(peer, salted).last.cache().miss(), v1::CACHE_MISS_UNKNOWN);
  EXPECT_EQ(Answered(peer, salted).cached(), 96u);

  v1::GenerateRequest scored = Request(Some(100, 1));
  scored.set_prompt_logprobs(1);
  EXPECT_EQ(Answered(peer, scored).last.cache().miss(), v1::CACHE_MISS_PROMPT_LOGPROBS);
  EXPECT_EQ(Answered(peer, Request(Some(16, 5))).last.cache().miss(), v1::CACHE_MISS_SHORT);
  v1::GenerateRequest silent = Request(Some(100, 1));
  silent.set_report_cache(false);
  EXPECT_FALSE(Answered(peer, silent).last.has_cache());
  EXPECT_EQ(peer.MetricOf("rivulet_prefix_cache_hits_total"), 3);
  EXPECT_EQ(peer.MetricOf("rivulet_prefix_cache_tokens_reused_total"), 3 * 96);
}

TEST(SharedPrefixTest, CanBeOff) {
  Peer peer(SmallModel(), {"--prefix-cache=off"});
  for (int i = 0; i < 2; ++i) {
    const Turn answer = Answered(peer, Request(Some(100, 1)));
    EXPECT_EQ(answer.last.cache().miss(), v1::CACHE_MISS_OFF);
    EXPECT_EQ(answer.cached(), 0u);
  }
  EXPECT_EQ(peer.MetricOf("rivulet_prefix_cache_tokens"), 0);
}

TEST(SharedPrefixTest, SixtyFourClientsWithOnePromptPayOnePrefill) {
  Peer peer(SourcePath("models/tales"), {"--max-queue=64", "--state-memory=1GiB"});
  const Tokens prompt = Some(4096, 3);
  std::vector<std::thread> clients;
  std::vector<Turn> answers(64);
  for (Turn& answer : answers) {
    clients.emplace_back([&] { answer = Answered(peer, Request(prompt)); });
  }
  for (std::thread& client : clients) client.join();
  for (const Turn& answer : answers) {
    EXPECT_EQ(answer.tokens, answers[0].tokens);
    EXPECT_EQ(answer.logprobs, answers[0].logprobs);
  }
  const double computed = peer.MetricOf("rivulet_prompt_tokens_total{source=\"computed\"}");
  // One that arrives in the last moments of the first may have to begin at 2048.
  EXPECT_LE(computed, 4096 + 63 * 16 + 2048);
  EXPECT_GE(computed, 4096 + 63 * 16);
}

// The first turns of sessions, which share a prompt and go on differently.
TEST(SharedPrefixTest, SixtyFourSessionsOnOnePromptPayOnePrefill) {
  Peer peer(SourcePath("models/tales"), {"--max-queue=64", "--state-memory=1GiB"});
  std::vector<std::thread> clients;
  std::vector<Turn> answers(64);
  for (uint32_t i = 0; i < 64; ++i) {
    Tokens prompt = Some(4096, 3);
    prompt.push_back(i);
    grpc::ClientContext context;
    v1::Session session;
    EXPECT_TRUE(peer.sessions->CreateSession(&context, {}, &session).ok());
    v1::GenerateRequest request = Request(prompt);
    request.set_session_id(session.id());
    clients.emplace_back([&, i, request] { answers[i] = Answered(peer, request); });
  }
  for (std::thread& client : clients) client.join();
  for (const Turn& answer : answers) EXPECT_EQ(answer.tokens.size(), 8u);
  const double computed = peer.MetricOf("rivulet_prompt_tokens_total{source=\"computed\"}");
  EXPECT_LE(computed, 4096 + 64 * 17 + 2048);
  EXPECT_GE(computed, 4096 + 64);
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
      std::vector<Turn> answers(requests.size());
      std::vector<std::thread> clients;
      for (size_t i = 0; i < requests.size(); ++i) {
        clients.emplace_back([&, i] { answers[i] = Answered(with, requests[i]); });
      }
      for (std::thread& client : clients) client.join();
      for (size_t i = 0; i < requests.size(); ++i) {
        const Turn expected = Answered(without, requests[i]);
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
  EXPECT_TRUE(Answered(peer, request).status.ok());
  for (const size_t bytes : {size_t{257}, size_t{1} << 20}) {
    request.set_cache_salt(std::string(bytes, 's'));
    const grpc::Status status = peer.Generate(request).status;
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
