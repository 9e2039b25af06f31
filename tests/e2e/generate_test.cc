// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Generate through the real server on the bundled model: streaming, sampling, stops,
// log-probabilities, and that other requests change no bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tests/e2e/server_process.h"

namespace rivulet::e2e {
namespace {

struct Completion {
  absl::Status status;
  std::string text;
  std::vector<uint32_t> ids;
  std::vector<v1::TokenLogprob> logprobs;
  std::vector<v1::TokenLogprob> prompt_logprobs;
  v1::GenerateResponse first, last;
  int messages = 0;
};

class GenerateTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto server = ServerProcess::Start(SourcePath("models/tales"));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    client_ = std::make_unique<Client>(server_->address());
  }
  static void TearDownTestSuite() {
    client_.reset();
    const Exit exit = server_->Stop();
    EXPECT_EQ(exit.code, 0) << exit.output;
    server_.reset();
  }

  static std::vector<Completion> RunAll(const v1::GenerateRequest& request, size_t count = 1) {
    std::vector<Completion> results(count);
    const absl::Status status = client_->Generate(request, {}, [&](const auto& message) {
      Completion& c = results.at(message.index());
      if (c.messages++ == 0) c.first = message;
      c.text += message.text();
      c.ids.insert(c.ids.end(), message.token_ids().begin(), message.token_ids().end());
      for (const auto& p : message.logprobs()) c.logprobs.push_back(p);
      for (const auto& p : message.prompt_logprobs()) c.prompt_logprobs.push_back(p);
      c.last = message;
      return true;
    });
    for (Completion& c : results) c.status = status;
    return results;
  }
  static Completion RunOne(const v1::GenerateRequest& request) { return RunAll(request)[0]; }

  static v1::GenerateRequest Request(const std::string& prompt, uint32_t tokens,
                                     float temperature = 0.8f, uint64_t seed = 7) {
    v1::GenerateRequest request;
    request.set_prompt(prompt);
    request.set_max_tokens(tokens);
    request.mutable_sampling()->set_temperature(temperature);
    request.mutable_sampling()->set_seed(seed);
    request.mutable_sampling()->set_repetition_penalty(1);  // not the checkpoint's default
    request.mutable_stop()->set_ignore_eos(true);
    return request;
  }

  static inline std::unique_ptr<ServerProcess> server_;
  static inline std::unique_ptr<Client> client_;
};

TEST_F(GenerateTest, StreamsTextAndEndsWithUsage) {
  const Completion c = RunOne(Request("Once upon a time", 40));
  ASSERT_TRUE(c.status.ok()) << c.status.ToString();
  EXPECT_EQ(c.ids.size(), 40u);
  EXPECT_GT(c.messages, 3) << "tokens should come as they are made";
  EXPECT_GT(c.text.size(), 40u);
  EXPECT_EQ(c.first.seed(), 7u);
  EXPECT_FALSE(c.first.request_id().empty());
  EXPECT_EQ(c.last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(c.last.usage().completion_tokens(), 40u);
  EXPECT_GT(c.last.usage().prompt_tokens(), 0u);
}

TEST_F(GenerateTest, SeedDecidesTheText) {
  EXPECT_EQ(RunOne(Request("The king", 30)).ids, RunOne(Request("The king", 30)).ids);
  EXPECT_NE(RunOne(Request("The king", 30)).ids, RunOne(Request("The king", 30, 0.8f, 8)).ids);
}

TEST_F(GenerateTest, AMissingSeedIsDrawnAndReported) {
  v1::GenerateRequest request = Request("The king", 20);
  request.mutable_sampling()->clear_seed();
  const Completion drawn = RunOne(request);
  request.mutable_sampling()->set_seed(drawn.first.seed());
  EXPECT_EQ(RunOne(request).ids, drawn.ids);
}

TEST_F(GenerateTest, NeighboursDoNotChangeABit) {
  std::vector<v1::GenerateRequest> requests;
  const std::string filler = "There was once a poor woodcutter who lived by a great forest. ";
  for (uint64_t i = 0; i < 12; ++i) {
    std::string prompt;
    for (uint64_t k = 0; k <= i * 3; ++k) prompt += filler;
    requests.push_back(Request(prompt, 24, i % 3 == 0 ? 0.0f : 0.9f, i));
    requests.back().set_logprobs(3);
  }
  std::vector<Completion> alone, together(requests.size());
  for (const auto& request : requests) alone.push_back(RunOne(request));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { together[i] = RunOne(requests[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(together[i].status.ok()) << together[i].status.ToString();
    EXPECT_EQ(together[i].ids, alone[i].ids) << i;
    ASSERT_EQ(together[i].logprobs.size(), alone[i].logprobs.size());
    for (size_t k = 0; k < alone[i].logprobs.size(); ++k) {
      EXPECT_EQ(together[i].logprobs[k].SerializeAsString(),
                alone[i].logprobs[k].SerializeAsString());
    }
  }
}

// A continuation's tokens must have the log-probabilities that Score gives them: decode = prefill.
TEST_F(GenerateTest, LogprobsAreThoseOfScoreBitForBit) {
  v1::GenerateRequest request = Request("A long time ago", 50, 0.0f);
  request.set_logprobs(5);
  const Completion c = RunOne(request);
  v1::TokenizeRequest tokenize;
  tokenize.set_text("A long time ago");
  tokenize.set_add_bos(true);
  const auto prompt = client_->Tokenize(tokenize);
  ASSERT_TRUE(prompt.ok());
  v1::ScoreRequest score;
  *score.mutable_token_ids()->mutable_ids() = prompt->token_ids();
  for (uint32_t id : c.ids) score.mutable_token_ids()->add_ids(id);
  score.set_top_logprobs(5);
  const auto scored = client_->Score(score);
  ASSERT_TRUE(scored.ok()) << scored.status().ToString();
  const int first = scored->tokens_size() - static_cast<int>(c.ids.size());
  ASSERT_EQ(c.last.usage().prompt_tokens(), static_cast<uint32_t>(first) + 1)
      << "the prompt as served is the prompt as tokenized with BOS";
  for (size_t i = 0; i < c.ids.size(); ++i) {
    const auto& expected = scored->tokens(first + static_cast<int>(i));
    EXPECT_EQ(c.logprobs[i].token_id(), c.ids[i]);
    EXPECT_EQ(c.logprobs[i].logprob(), expected.logprob()) << i;
    ASSERT_EQ(c.logprobs[i].top_size(), 5);
    EXPECT_EQ(c.logprobs[i].top(0).token_id(), c.ids[i]) << "greedy takes the best";
  }
}

TEST_F(GenerateTest, PromptLogprobsAreThoseOfScore) {
  v1::GenerateRequest request = Request("Once upon a time there was a king", 1);
  request.set_prompt_logprobs(2);
  const Completion c = RunOne(request);
  v1::ScoreRequest score;
  score.set_prompt("Once upon a time there was a king");
  score.set_top_logprobs(2);
  const auto scored = client_->Score(score);
  ASSERT_TRUE(scored.ok()) << scored.status().ToString();
  ASSERT_EQ(static_cast<int>(c.prompt_logprobs.size()), scored->tokens_size());
  for (int i = 0; i < scored->tokens_size(); ++i) {
    EXPECT_EQ(c.prompt_logprobs[i].logprob(), scored->tokens(i).logprob()) << i;
  }
}

TEST_F(GenerateTest, StopStringsNeverLeak) {
  const Completion whole = RunOne(Request("Once upon a time", 60, 0.0f));
  const std::string stop = whole.text.substr(25, 9);
  const size_t at = whole.text.find(stop);
  v1::GenerateRequest request = Request("Once upon a time", 60, 0.0f);
  request.mutable_stop()->add_strings(stop);
  Completion stopped = RunOne(request);
  EXPECT_EQ(stopped.text, whole.text.substr(0, at));
  EXPECT_EQ(stopped.last.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(stopped.last.matched_stop(), stop);
  request.mutable_stop()->set_include_stop(true);
  EXPECT_EQ(RunOne(request).text, whole.text.substr(0, at) + stop);
}

TEST_F(GenerateTest, StopIdsAndMinimumTokens) {
  const Completion whole = RunOne(Request("Once upon a time", 20, 0.0f));
  v1::GenerateRequest request = Request("Once upon a time", 20, 0.0f);
  request.mutable_stop()->add_token_ids(whole.ids[5]);
  const Completion stopped = RunOne(request);
  EXPECT_EQ(stopped.last.finish_reason(), v1::FINISH_REASON_STOP);
  const auto expected = std::find(whole.ids.begin(), whole.ids.end(), whole.ids[5]);
  EXPECT_EQ(stopped.last.usage().completion_tokens(),
            static_cast<uint32_t>(expected - whole.ids.begin()) + 1);
  request.mutable_stop()->set_min_tokens(15);
  EXPECT_GE(RunOne(request).last.usage().completion_tokens(), 15u);
}

TEST_F(GenerateTest, SeveralCompletionsOfOnePromptDiffer) {
  v1::GenerateRequest request = Request("The old woman said", 20);
  request.set_n(3);
  const std::vector<Completion> c = RunAll(request, 3);
  ASSERT_TRUE(c[0].status.ok()) << c[0].status.ToString();
  for (const Completion& one : c) EXPECT_EQ(one.ids.size(), 20u);
  EXPECT_NE(c[0].ids, c[1].ids);
  EXPECT_NE(c[1].ids, c[2].ids);
  EXPECT_EQ(c[0].ids, RunOne(Request("The old woman said", 20)).ids) << "index 0 is n = 1";
}

TEST_F(GenerateTest, BiasAndPenaltiesAct) {
  const Completion plain = RunOne(Request("Once upon a time", 10, 0.0f));
  v1::GenerateRequest request = Request("Once upon a time", 10, 0.0f);
  (*request.mutable_sampling()->mutable_logit_bias())[plain.ids[0]] = -100;
  EXPECT_NE(RunOne(request).ids[0], plain.ids[0]);
  request = Request("Once upon a time", 10, 0.0f);
  (*request.mutable_sampling()->mutable_logit_bias())[42] = 100;
  for (uint32_t id : RunOne(request).ids) EXPECT_EQ(id, 42u);
  request.mutable_sampling()->set_presence_penalty(2);
  request.mutable_sampling()->set_frequency_penalty(2);
  (*request.mutable_sampling()->mutable_logit_bias())[42] = 3;
  EXPECT_TRUE(RunOne(request).status.ok());
}

TEST_F(GenerateTest, ZeroTokensProcessesThePromptOnly) {
  v1::GenerateRequest request = Request("Once upon a time", 0);
  const Completion c = RunOne(request);
  ASSERT_TRUE(c.status.ok()) << c.status.ToString();
  EXPECT_TRUE(c.ids.empty());
  EXPECT_EQ(c.last.finish_reason(), v1::FINISH_REASON_LENGTH);
}

// Every message must be valid UTF-8 by itself, or protobuf would refuse it; and the sum must be
// what Detokenize makes of the same ids.
TEST_F(GenerateTest, CharactersAreNeverCut) {
  v1::GenerateRequest request =
      Request("He said: \xE2\x80\x9C\xC3\xA9t\xC3\xA9\xE2\x80\x9D \xF0\x9F\x90\xB2", 60, 3.0f);
  const Completion c = RunOne(request);
  ASSERT_TRUE(c.status.ok()) << c.status.ToString();
  v1::DetokenizeRequest detokenize;
  for (uint32_t id : c.ids) detokenize.add_token_ids(id);
  const auto text = client_->Detokenize(detokenize);
  ASSERT_TRUE(text.ok());
  // Detokenize begins a text, so that it drops the space that its first token may carry.
  const std::string streamed = c.text.substr(0, 1) == " " ? c.text.substr(1) : c.text;
  const std::string plain =
      text->text().substr(0, 1) == " " ? text->text().substr(1) : text->text();
  EXPECT_EQ(streamed, plain);
}

TEST_F(GenerateTest, TokenizeAndDetokenizeAreInverse) {
  for (const std::string text : {"Once upon a time, there was a king.", "two  spaces\nand a line",
                                 "\xC3\xA9\xF0\x9F\x90\xB2 dragon", "x"}) {
    v1::TokenizeRequest tokenize;
    tokenize.set_text(text);
    const auto ids = client_->Tokenize(tokenize);
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->pieces_size(), ids->token_ids_size());
    v1::DetokenizeRequest detokenize;
    *detokenize.mutable_token_ids() = ids->token_ids();
    const auto back = client_->Detokenize(detokenize);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->text(), text);
  }
}

TEST_F(GenerateTest, GetModelDescribesIt) {
  const auto model = client_->GetModel();
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->name(), "tales");
  EXPECT_EQ(model->architecture(), "hla");
  EXPECT_TRUE(model->has_tokenizer());
  EXPECT_GE(model->parameters(), 5'000'000u);
  EXPECT_LE(model->parameters(), 10'000'000u);
  EXPECT_EQ(model->fold_interval(), 16u);
  EXPECT_GT(model->state_bytes_per_session(), 0u);
  int hla = 0;
  for (const std::string& mixer : model->layer_mixers()) hla += mixer == "hla";
  EXPECT_GE(2 * hla, model->layer_mixers_size());
}

TEST_F(GenerateTest, AClientThatLeavesCostsOnlyItsOwnStream) {
  for (int i = 0; i < 20; ++i) {
    int messages = 0;
    const absl::Status status = client_->Generate(Request("Once upon a time", 5000), {},
                                                  [&](const auto&) { return ++messages < 2; });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(RunOne(Request("Once upon a time", 10)).ids.size(), 10u);
}

TEST_F(GenerateTest, ADeadlineEndsARunningStream) {
  const absl::Status status = client_->Generate(Request("Once upon a time", 100000),
                                                {.timeout = std::chrono::milliseconds(300)},
                                                [](const auto&) { return true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace rivulet::e2e
