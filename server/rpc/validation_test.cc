// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/service/validation.h"

#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/services.h"
#include "server/scheduler/test_support.h"
#include "server/service/message_conversion.h"

namespace rivulet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kMaxPrompt = 10;

class ValidationTest : public testing::Test {
 protected:
  ValidationTest() {
    model_.info.set_name("toy");
    model_.info.set_vocab_size(FakeEngine::kVocab);
    model_.tokenizer = &tokenizer_;
    model_.eos_ids = {FakeTokenizer::kEos};
  }
  absl::StatusOr<std::unique_ptr<Request>> Make(const v1::GenerateRequest& proto) {
    return MakeGenerateRequest(proto, model_, kMaxPrompt, sessions_);
  }

  Metrics metrics_;
  SessionTable sessions_{{}, metrics_};
  FakeTokenizer tokenizer_;
  ServedModel model_;
};

TEST_F(ValidationTest, DefaultsOfTheApiThenOfTheModel) {
  v1::GenerateRequest proto;
  proto.set_prompt("ab c");
  auto request = Make(proto);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT((*request)->prompt, ElementsAre(0, 1, FakeTokenizer::kSpace, 2));
  EXPECT_EQ((*request)->max_tokens, 256u);
  EXPECT_EQ((*request)->completions, 1u);
  EXPECT_EQ((*request)->sampling.temperature, 1.0f);
  EXPECT_FALSE((*request)->score_prompt);

  model_.defaults.temperature = 0.5f;
  model_.defaults.max_tokens = 7;
  request = Make(proto);
  EXPECT_EQ((*request)->sampling.temperature, 0.5f);
  EXPECT_EQ((*request)->max_tokens, 7u);
  proto.mutable_sampling()->set_temperature(0);
  proto.set_max_tokens(0);
  request = Make(proto);
  EXPECT_EQ((*request)->sampling.temperature, 0.0f);
  EXPECT_EQ((*request)->max_tokens, 0u);
}

TEST_F(ValidationTest, SeedIsDrawnUnlessGiven) {
  v1::GenerateRequest proto;
  proto.set_prompt("a");
  EXPECT_NE((*Make(proto))->sampling.seed, (*Make(proto))->sampling.seed);
  proto.mutable_sampling()->set_seed(5);
  EXPECT_EQ((*Make(proto))->sampling.seed, 5u);
}

TEST_F(ValidationTest, TextStartsWithBosIfThereIsOneAndIdsDoNot) {
  model_.begin_ids = {FakeTokenizer::kBos};
  v1::GenerateRequest proto;
  proto.set_prompt("a");
  EXPECT_THAT((*Make(proto))->prompt, ElementsAre(FakeTokenizer::kBos, 0));
  proto.set_prompt("");
  EXPECT_THAT((*Make(proto))->prompt, ElementsAre(FakeTokenizer::kBos));
  proto.mutable_token_ids()->add_ids(4);
  EXPECT_THAT((*Make(proto))->prompt, ElementsAre(4));
}

TEST_F(ValidationTest, SpecialTokensInAPromptCountIfAskedFor) {
  v1::GenerateRequest proto;
  proto.set_prompt("<s>a");
  EXPECT_FALSE(Make(proto).ok());  // "<" is no letter
  proto.set_special_tokens(true);
  EXPECT_THAT((*Make(proto))->prompt, ElementsAre(FakeTokenizer::kBos, 0));
}

TEST_F(ValidationTest, AContextEndsWhereTheModelsLevelsOrPositionsDo) {
  model_.info.set_max_context(8);
  v1::GenerateRequest proto;
  for (uint32_t i = 0; i < 2; ++i) proto.mutable_token_ids()->add_ids(4);
  proto.set_max_tokens(7);
  EXPECT_EQ((*Make(proto))->max_tokens, 7u);  // the seventh is not read any more
  proto.set_max_tokens(1000);
  EXPECT_EQ((*Make(proto))->max_tokens, 7u);
  for (uint32_t i = 0; i < 6; ++i) proto.mutable_token_ids()->add_ids(4);
  EXPECT_EQ((*Make(proto))->max_tokens, 1u);
  proto.mutable_token_ids()->add_ids(4);
  const absl::Status status = Make(proto).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("9 tokens"), HasSubstr("positions"),
                                                   HasSubstr("reach 8"), Not(HasSubstr("level"))));
  model_.has_levels = true;
  EXPECT_THAT(
      std::string(Make(proto).status().message()),
      AllOf(HasSubstr("levels"), HasSubstr("reach 8"), HasSubstr("--level-overflow clamp")));
}

// A change that makes a good request bad, and what the error must say.
struct Bad {
  std::function<void(v1::GenerateRequest&)> change;
  std::vector<const char*> expected;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

TEST_F(ValidationTest, EveryLimitNamesFieldValueAndLimit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Bad cases[] = {
      {[](auto& r) { r.clear_prompt(); }, {"empty", "token_ids"}},
      {[](auto& r) { r.set_prompt(""); }, {"empty"}},
      {[](auto& r) { r.mutable_token_ids(); }, {"empty"}},
      {[](auto& r) { r.set_prompt("abcdefghijk"); }, {"11", "10", "--max-prompt"}},
      {[](auto& r) { r.set_prompt(std::string(5000, 'a')); }, {"5000", "--max-prompt"}},
      {[](auto& r) { r.set_prompt("A"); }, {"letters only"}},
      {[](auto& r) { r.mutable_token_ids()->add_ids(100); }, {"token_ids", "100", "toy"}},
      {[](auto& r) { r.mutable_messages(); }, {"messages", "chat template"}},
      {[](auto& r) { r.set_session_id("s"); }, {"\"s\""}, absl::StatusCode::kNotFound},
      {[](auto& r) { r.set_session_id(std::string(129, 's')); }, {"session_id", "129", "128"}},
      {[](auto& r) { r.mutable_sampling()->set_temperature(-1); }, {"temperature", "-1"}},
      {[nan](auto& r) { r.mutable_sampling()->set_temperature(nan); }, {"temperature"}},
      {[](auto& r) { r.mutable_sampling()->set_top_p(0); }, {"top_p"}},
      {[](auto& r) { r.mutable_sampling()->set_min_p(1); }, {"min_p"}},
      {[](auto& r) { r.mutable_sampling()->set_repetition_penalty(0); }, {"repetition_penalty"}},
      {[](auto& r) { r.mutable_sampling()->set_frequency_penalty(2.5); }, {"frequency", "2.5"}},
      {[](auto& r) { r.mutable_sampling()->set_presence_penalty(-3); }, {"presence", "-3"}},
      {[](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[100] = 1; }, {"100"}},
      {[](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[1] = 101; }, {"101"}},
      {[](auto& r) { r.set_n(0); }, {"n = 0", "at least 1"}},
      {[](auto& r) { r.set_n(65); }, {"n = 65", "64"}},
      {[](auto& r) { r.set_keep_choices(true); }, {"keep_choices", "session_id"}},
      {[](auto& r) { r.set_logprobs(21); }, {"logprobs = 21", "20"}},
      {[](auto& r) { r.set_prompt_logprobs(21); }, {"prompt_logprobs = 21", "20"}},
      {[](auto& r) { r.mutable_stop()->add_strings(""); }, {"empty"}},
      {[](auto& r) { r.mutable_stop()->add_strings(std::string(257, 'a')); }, {"256"}},
      {[](auto& r) { r.mutable_stop()->add_token_ids(100); }, {"stop.token_ids", "100"}},
      {[](auto& r) { r.mutable_stop()->mutable_token_ids()->Resize(65, 1); }, {"65", "64"}},
      {[](auto& r) { r.mutable_stop()->set_min_tokens(300); }, {"min_tokens = 300", "256"}},
      {[](auto& r) { r.set_cache_salt(std::string(257, 'x')); }, {"cache_salt", "257", "256"}},
      {[](auto& r) { r.set_request_id(std::string(129, 'x')); }, {"request_id", "129", "128"}},
  };
  for (const Bad& bad : cases) {
    v1::GenerateRequest proto;
    proto.set_prompt("abc");
    ASSERT_TRUE(Make(proto).ok());
    bad.change(proto);
    const absl::Status status = Make(proto).status();
    EXPECT_EQ(status.code(), bad.code) << status;
    for (const char* part : bad.expected) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
}

TEST_F(ValidationTest, SeventeenStopStringsAreTooMany) {
  v1::GenerateRequest proto;
  proto.set_prompt("a");
  for (int i = 0; i < 17; ++i) proto.mutable_stop()->add_strings("x");
  EXPECT_THAT(std::string(Make(proto).status().message()), HasSubstr("16"));
}

TEST_F(ValidationTest, ModelWithoutTokenizer) {
  model_.tokenizer = nullptr;
  v1::GenerateRequest proto;
  proto.set_prompt("a");
  EXPECT_EQ(Make(proto).status().code(), absl::StatusCode::kFailedPrecondition);
  proto.mutable_token_ids()->add_ids(1);
  EXPECT_TRUE(Make(proto).ok());
  proto.mutable_stop()->add_strings("x");
  EXPECT_THAT(std::string(Make(proto).status().message()), HasSubstr("stop.token_ids"));
}

TEST_F(ValidationTest, MessagesNeedAChatTemplate) {
  v1::GenerateRequest proto;
  proto.mutable_messages()->add_messages()->set_role("user");
  const absl::Status status = Make(proto).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("toy has no chat template"));
}

TEST_F(ValidationTest, Score) {
  v1::ScoreRequest proto;
  proto.mutable_token_ids()->add_ids(1);
  const auto request = MakeScoreRequest(proto, model_, kMaxPrompt, sessions_);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE((*request)->score_prompt);
  EXPECT_EQ((*request)->max_tokens, 0u);
  proto.set_top_logprobs(21);
  EXPECT_FALSE(MakeScoreRequest(proto, model_, kMaxPrompt, sessions_).ok());
  proto.set_top_logprobs(0);
  proto.set_session_id("s");
  EXPECT_EQ(MakeScoreRequest(proto, model_, kMaxPrompt, sessions_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ValidationTest, LeasesTheSessionLastAndKeepsNoneOnFailure) {
  ASSERT_TRUE(sessions_.Create("s", "").ok());
  v1::GenerateRequest proto;
  proto.set_prompt("abc");
  proto.set_session_id("s");
  proto.set_n(65);
  EXPECT_THAT(std::string(Make(proto).status().message()), HasSubstr("n = 65"));
  proto.set_n(2);
  proto.set_prompt("");
  EXPECT_THAT(std::string(Make(proto).status().message()), HasSubstr("empty"));
  EXPECT_FALSE(sessions_.Get("s")->busy);
  proto.set_prompt("abc");
  const auto request = Make(proto);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE((*request)->session.exclusive());
  EXPECT_EQ(Make(proto).status().code(), absl::StatusCode::kAborted);
  v1::ScoreRequest score;
  score.set_prompt("a");
  score.set_session_id("s");
  EXPECT_EQ(MakeScoreRequest(score, model_, kMaxPrompt, sessions_).status().code(),
            absl::StatusCode::kAborted);
  (*request)->session.Release();
  const auto reading = MakeScoreRequest(score, model_, kMaxPrompt, sessions_);
  ASSERT_TRUE(reading.ok()) << reading.status();
  EXPECT_FALSE((*reading)->session.exclusive());
}

TEST_F(ValidationTest, ScoresThatCannotBeSentAreRefusedBeforeTheyAreComputed) {
  v1::ScoreRequest proto;
  proto.mutable_token_ids()->mutable_ids()->Resize(200000, 1);
  proto.set_top_logprobs(20);
  const absl::Status status = MakeScoreRequest(proto, model_, 1u << 20, sessions_).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("64 are allowed"));
}

TEST_F(ValidationTest, TokenizeAndDetokenize) {
  v1::TokenizeRequest request;
  request.set_text("a b");
  v1::TokenizeResponse response;
  ASSERT_TRUE(Tokenize(model_, request, response).ok());
  EXPECT_THAT(response.token_ids(), ElementsAre(0, FakeTokenizer::kSpace, 1));
  EXPECT_THAT(response.pieces(), ElementsAre("a", " ", "b"));
  request.set_add_bos(true);
  EXPECT_EQ(Tokenize(model_, request, response).code(), absl::StatusCode::kInvalidArgument);

  v1::DetokenizeRequest ids;
  ids.add_token_ids(FakeTokenizer::kFirstByte);
  ids.add_token_ids(FakeTokenizer::kSecondByte);
  v1::DetokenizeResponse text;
  ASSERT_TRUE(Detokenize(model_, ids, text).ok());
  EXPECT_EQ(text.text(), "\xC3\xA9");
  ids.add_token_ids(100);
  EXPECT_EQ(Detokenize(model_, ids, text).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ValidationTest, PieceOfHalfACharacterIsLossy) {
  EXPECT_EQ(LossyText(&tokenizer_, FakeTokenizer::kFirstByte), "\xEF\xBF\xBD");
  EXPECT_EQ(LossyText(&tokenizer_, 1), "b");
  EXPECT_EQ(LossyText(nullptr, 1), "");
}

}  // namespace
}  // namespace rivulet
