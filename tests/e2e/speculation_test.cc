// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Speculation through the real server: the same bytes with drafts and without, alone and in
// company, and what is refused.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "kernels/base/test_directory.h"
#include "kernels/base/test_seed.h"
#include "kernels/device/gpu_testing.h"
#include "rivulet/v1/inference.grpc.pb.h"
#include "tests/e2e/peer.h"

namespace rivulet::e2e {
namespace {

// What says how a completion was made, and not what it is.
void CheckAndClearGuesses(v1::GenerateResponse& whole) {
  EXPECT_EQ(whole.guessed_size(), static_cast<int>(whole.usage().accepted_tokens()));
  EXPECT_LE(whole.usage().accepted_tokens(), whole.usage().drafted_tokens());
  EXPECT_LE(whole.usage().accepted_tokens(), whole.usage().completion_tokens());
  whole.clear_guessed();
  whole.mutable_usage()->clear_drafted_tokens();
  whole.mutable_usage()->clear_accepted_tokens();
}

// Of each completion: its text, ids, log-probabilities and reason, put together.
using Answer = std::vector<std::string>;

Answer Completions(Peer& peer, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  auto reader = peer.inference->Generate(&context, request);
  std::vector<v1::GenerateResponse> whole(request.n());
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
    v1::GenerateResponse& one = whole[message.index()];
    for (const uint32_t place : message.guessed()) {
      EXPECT_LT(place, static_cast<uint32_t>(message.token_ids_size()));
    }
    const std::string text = one.text() + message.text();
    one.MergeFrom(message);
    one.set_text(text);
  }
  EXPECT_TRUE(reader->Finish().ok());
  Answer answer;
  for (v1::GenerateResponse& one : whole) {
    one.clear_request_id();
    CheckAndClearGuesses(one);
    answer.push_back(one.SerializeAsString());
  }
  return answer;
}

// Everything that may be asked, at random.
v1::GenerateRequest RandomRequest(std::mt19937_64& random) {
  const auto one_in = [&random](uint64_t n) { return random() % n == 0; };
  const char* const prompts[] = {"Once upon a time", "The king said to", "A fox and a wolf",
                                 "There was a poor woman who"};
  v1::GenerateRequest request;
  request.set_prompt(prompts[random() % 4]);
  request.set_max_tokens(static_cast<uint32_t>(1 + random() % 120));
  request.set_n(one_in(4) ? 3 : 1);
  request.set_logprobs(one_in(2) ? 3 : 0);
  v1::SamplingParams& sampling = *request.mutable_sampling();
  sampling.set_seed(random() % 1000);
  sampling.set_temperature(one_in(2) ? 0.0f : 0.7f);
  if (one_in(4)) sampling.set_repetition_penalty(1.2f);
  if (one_in(4)) sampling.set_frequency_penalty(0.3f);
  if (one_in(3)) sampling.set_top_p(0.9f);
  if (one_in(3)) request.mutable_stop()->add_strings("the");
  request.mutable_stop()->set_ignore_eos(one_in(2));
  if (one_in(4)) request.mutable_stop()->set_min_tokens(request.max_tokens() / 2);
  if (one_in(4)) {
    request.mutable_structured_output()->set_json_object(true);
  } else if (one_in(4)) {
    request.mutable_structured_output()->set_regex("( ?[A-Za-z',]+)*\\.");
  }
  return request;
}

// What the streams will say.
std::string WriteText(const std::vector<Answer>& answers) {
  const std::string path = TestDirectory() + "/text";
  std::ofstream file(path);
  for (const Answer& answer : answers) {
    v1::GenerateResponse response;
    EXPECT_TRUE(response.ParseFromString(answer[0]));
    file << response.text() << "\n";
  }
  return path;
}

void ExpectSame(const std::vector<Answer>& a, const std::vector<Answer>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << "request " << i;
}

// One after the other, and then from several threads at once.
TEST(SpeculationTest, TheSameBytesWithDraftsAndWithout) {
  std::mt19937_64 random(TestSeed());
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 40; ++i) requests.push_back(RandomRequest(random));
  std::vector<Answer> expected;
  {
    Peer plain(SourcePath("models/tales"));
    for (const auto& request : requests) expected.push_back(Completions(plain, request));
    EXPECT_EQ(plain.MetricOf("rivulet_draft_tokens_total{source=\"lookup\"}"), 0);
  }
  Peer peer(SourcePath("models/tales"),
            {"--speculate=lookup", "--lookup-text=" + WriteText(expected)});
  std::vector<Answer> alone, together(requests.size());
  for (const auto& request : requests) alone.push_back(Completions(peer, request));
  ExpectSame(alone, expected);
  EXPECT_GT(peer.MetricOf("rivulet_draft_tokens_accepted_total{source=\"lookup\"}"), 50);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < requests.size(); i += 4) together[i] = Completions(peer, requests[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectSame(together, expected);
  EXPECT_EQ(peer.MetricOf("rivulet_draft_memory_bytes"), 0) << "of completions that have ended";
}

void ExpectSameBytesWithDraftModel(const std::string& draft_model, int count) {
  std::mt19937_64 random(TestSeed());
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) requests.push_back(RandomRequest(random));
  Peer plain(SourcePath("models/tales"));
  Peer peer(SourcePath("models/tales"),
            {"--speculate=draft", "--draft-model=" + SourcePath(draft_model)});
  for (const auto& request : requests)
    ASSERT_EQ(Completions(peer, request), Completions(plain, request));
  EXPECT_GT(peer.MetricOf("rivulet_draft_tokens_accepted_total{source=\"model\"}"), 0);
  EXPECT_EQ(peer.MetricOf("rivulet_draft_memory_bytes"), 0) << "of completions that have ended";
}

// The model drafts for itself, so that most drafts are right.
TEST(SpeculationTest, TheSameBytesWithADraftModel) {
  ExpectSameBytesWithDraftModel("models/tales", 20);
}

TEST(SpeculationTest, TheSameBytesWithTheDraftModelOfTales) {
  ExpectSameBytesWithDraftModel("models/tales-draft", 8);
}

// Whose head, and --device.
class OwnHeadTest : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(OwnHeadTest, TheSameBytesWithDraftsAndWithout) {
  const std::string device = std::get<1>(GetParam());
  std::vector<std::string> flags = {"--device=" + device, "--state-memory=1GiB"};
  if (device == "cuda") RIVULET_NEED_GPU();
  const std::string model = SourcePath(std::string("tests/parity/fixtures/upstream_hf_") +
                                       std::get<0>(GetParam()) + "_predictor");
  constexpr uint32_t kVocab = 60;  // it has no tokenizer
  std::mt19937_64 random(TestSeed());
  Peer plain(model, flags);
  flags.push_back("--speculate=mtp");
  Peer peer(model, flags);
  for (int i = 0; i < 20; ++i) {
    v1::GenerateRequest request = RandomRequest(random);
    request.mutable_stop()->clear_strings();
    request.clear_structured_output();
    const size_t tokens = 1 + random() % 40;
    for (size_t t = 0; t < tokens; ++t) {
      request.mutable_token_ids()->add_ids(static_cast<uint32_t>(random() % kVocab));
    }
    ASSERT_EQ(Completions(peer, request), Completions(plain, request));
  }
  EXPECT_GT(peer.MetricOf("rivulet_draft_tokens_total{source=\"mtp\"}"), 0);
}

INSTANTIATE_TEST_SUITE_P(Heads, OwnHeadTest,
                         testing::Combine(testing::Values("qwen3_5", "qwen3_next", "nemotron_h"),
                                          testing::Values("cpu", "cuda")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

// A model can take minutes to load.
TEST(SpeculationTest, MissingFilesAreNamedBeforeTheModelIsLoaded) {
  const auto refusal = [](const std::vector<std::string>& flags) {
    return std::string(ServerProcess::Start("/no_model", flags).status().message());
  };
  for (const char* text : {"/none", "/dev/null"}) {
    const std::string flag = std::string("--lookup-text=") + text;
    const std::string message = refusal({"--speculate=lookup", flag});
    EXPECT_NE(message.find("--lookup-text"), std::string::npos) << message;
  }
  const std::string message = refusal({"--speculate=draft", "--draft-model=/none"});
  EXPECT_NE(message.find("--draft-model=\"/none\""), std::string::npos) << message;
}

TEST(SpeculationTest, WhatCannotBeDraftedFromIsRefused) {
  const auto refusal = [](const std::vector<std::string>& flags) {
    return std::string(ServerProcess::Start(SourcePath("models/tales"), flags).status().message());
  };
  EXPECT_NE(refusal({"--speculate=lookup", "--lookup-text=/none"}).find("--lookup-text=\"/none\""),
            std::string::npos);
  EXPECT_NE(refusal({"--lookup-text=/dev/null"}).find("--speculate=lookup"), std::string::npos);
  EXPECT_NE(refusal({"--speculate=guess"}).find("off, lookup, draft, mtp"), std::string::npos);
  EXPECT_NE(refusal({"--speculate=draft"}).find("--draft-model"), std::string::npos);
  EXPECT_NE(refusal({"--draft-model=/none"}).find("--speculate=draft"), std::string::npos);
  const std::string other = SourcePath("tests/parity/fixtures/hla_masked");
  EXPECT_NE(refusal({"--speculate=draft", "--draft-model=" + other}).find("the model's has 4096"),
            std::string::npos);
  EXPECT_NE(refusal({"--speculate=mtp"}).find("no head that predicts further tokens"),
            std::string::npos);
  EXPECT_NE(refusal({"--speculate=lookup", "--lookup-text=/dev/null"}).find("an empty file"),
            std::string::npos);
  EXPECT_NE(refusal({"--draft-tokens=16"}).find("1 to 15"), std::string::npos);
}

// The remedy works: with so much memory the server starts.
TEST(SpeculationTest, TooLittleMemoryForTheDraftModelSaysHowMuchIsNeeded) {
  const auto start = [](uint64_t bytes) {
    return ServerProcess::Start(SourcePath("models/tales-draft"),
                                {"--speculate=draft", "--draft-model=" + SourcePath("models/tales"),
                                 "--state-memory=" + std::to_string(bytes)});
  };
  const auto refused = start(8'000'000);
  ASSERT_FALSE(refused.ok());
  const std::string message(refused.status().message());
  EXPECT_NE(message.find("its states get 1000000 bytes, an eighth of --state-memory"),
            std::string::npos)
      << message;
  std::smatch remedy;
  ASSERT_TRUE(std::regex_search(message, remedy, std::regex("--state-memory=([0-9]+) or more")))
      << message;
  const uint64_t bytes = std::stoull(remedy[1]);
  EXPECT_FALSE(start(bytes - 8).ok());
  const auto started = start(bytes);
  EXPECT_TRUE(started.ok()) << started.status();
}

}  // namespace
}  // namespace rivulet::e2e
