// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// structured_output through the real server on the bundled model: what is generated matches, with
// all sampling parameters, and the rest of the API works beside it. On the CPU, and on the GPU
// where there is one.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "kernels/device/gpu_testing.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/peer.h"

namespace rivulet::e2e {
namespace {

using Json = nlohmann::json;

constexpr char kSchema[] = R"({"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "colours": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3}},
    "required": ["name", "age"], "additionalProperties": false})";

v1::GenerateRequest Request(uint32_t max_tokens, float temperature, uint64_t seed) {
  v1::GenerateRequest request;
  request.set_prompt("Once upon a time");
  request.set_max_tokens(max_tokens);
  request.mutable_sampling()->set_temperature(temperature);
  request.mutable_sampling()->set_seed(seed);
  return request;
}

// The parameter is --device.
class StructuredOutputTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string device = GetParam();
    std::vector<std::string> flags = {"--device=" + device};
    if (device == "cuda") {
      RIVULET_NEED_GPU();
      flags.push_back("--state-memory=1GiB");
    }
    std::unique_ptr<Peer>& peer = peers_[device];
    if (peer == nullptr) peer = std::make_unique<Peer>(SourcePath("models/tales"), flags);
    peer_ = peer.get();
  }
  static void TearDownTestSuite() { peers_.clear(); }
  static inline std::map<std::string, std::unique_ptr<Peer>> peers_;
  Peer* peer_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Devices, StructuredOutputTest, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(StructuredOutputTest, WritesWhatTheSchemaAccepts) {
  for (const float temperature : {0.0f, 0.8f, 1.0f, 5.0f}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      v1::GenerateRequest request = Request(600, temperature, seed);
      request.mutable_structured_output()->set_json_schema(kSchema);
      const Turn turn = peer_->Generate(request);
      ASSERT_TRUE(turn.status.ok()) << turn.status.error_message();
      ASSERT_EQ(turn.last.finish_reason(), v1::FINISH_REASON_STOP) << turn.text;
      const Json value = Json::parse(turn.text, nullptr, false);
      ASSERT_TRUE(value.is_object()) << turn.text;
      EXPECT_TRUE(value["name"].is_string() && value["age"].is_number_integer()) << turn.text;
      EXPECT_TRUE(value["age"] >= 0 && value["age"] <= 150) << turn.text;
      EXPECT_TRUE(!value.contains("colours") || value["colours"].size() <= 3) << turn.text;
    }
  }
}

TEST_P(StructuredOutputTest, WritesRegularExpressionsChoicesAndGrammars) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    v1::GenerateRequest request = Request(100, 1.0f, seed);
    const std::string regex = "[A-Z][a-z]{3,8} (cat|dog), \\d{3}";
    request.mutable_structured_output()->set_regex(regex);
    Turn turn = peer_->Generate(request);
    EXPECT_TRUE(std::regex_match(turn.text, std::regex(regex))) << turn.text;
    EXPECT_EQ(turn.last.finish_reason(), v1::FINISH_REASON_STOP);

    auto* const choices = request.mutable_structured_output()->mutable_choices();
    for (const char* choice : {" the \"king\"", " a\\b", " the queen\n"})
      choices->add_strings(choice);
    turn = peer_->Generate(request);
    const auto& all = choices->strings();
    EXPECT_NE(std::find(all.begin(), all.end(), turn.text), all.end()) << turn.text;

    request.mutable_structured_output()->set_grammar(
        "root ::= item (\", \" item)* \".\"  # a list\nitem ::= \"(\" root \")\" | [a-z]{2,5}");
    turn = peer_->Generate(request);
    const bool ended = turn.last.finish_reason() == v1::FINISH_REASON_STOP;
    EXPECT_EQ(ended,
              turn.text.ends_with(".") && std::count(turn.text.begin(), turn.text.end(), '(') ==
                                              std::count(turn.text.begin(), turn.text.end(), ')'))
        << turn.text;
  }
}

TEST_P(StructuredOutputTest, SaysThatALimitCutTheText) {
  v1::GenerateRequest request = Request(6, 1.0f, 3);
  request.mutable_structured_output()->set_json_schema(kSchema);
  const Turn cut = peer_->Generate(request);
  EXPECT_EQ(cut.last.finish_reason(), v1::FINISH_REASON_LENGTH);
  request.set_max_tokens(600);
  const Turn whole = peer_->Generate(request);
  EXPECT_TRUE(whole.text.starts_with(cut.text));
  // The last token may be the one that ends the text.
  request.set_max_tokens(static_cast<uint32_t>(whole.tokens.size()));
  EXPECT_EQ(peer_->Generate(request).last.finish_reason(), v1::FINISH_REASON_STOP);
}

// A text that may end or go on ends by EOS.
TEST_P(StructuredOutputTest, EndsByEosWhereTheTextMayGoOn) {
  v1::GenerateRequest request = Request(40, 1.0f, 1);
  request.mutable_structured_output()->set_regex("[a-z]+");
  (*request.mutable_sampling()->mutable_logit_bias())[2] = 100;  // EOS
  const Turn turn = peer_->Generate(request);
  EXPECT_EQ(turn.last.finish_reason(), v1::FINISH_REASON_EOS);
  EXPECT_TRUE(std::regex_match(turn.text, std::regex("[a-z]+"))) << turn.text;
  request.mutable_stop()->set_ignore_eos(true);
  const Turn without = peer_->Generate(request);
  EXPECT_EQ(without.last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_TRUE(std::regex_match(without.text, std::regex("[a-z]+"))) << without.text;
}

// A stop id that the grammar takes as text ends the text only where it may end.
TEST_P(StructuredOutputTest, StopIdsComeOnlyWhereTheTextMayEnd) {
  v1::TokenizeRequest tokenize;
  tokenize.set_text("9");
  grpc::ClientContext context;
  v1::TokenizeResponse nine;
  ASSERT_TRUE(peer_->inference->Tokenize(&context, tokenize, &nine).ok());
  v1::GenerateRequest request = Request(20, 1.0f, 1);
  request.mutable_structured_output()->set_regex("[0-9]{3}");
  request.mutable_stop()->add_token_ids(nine.token_ids(nine.token_ids_size() - 1));
  for (uint64_t seed = 0; seed < 10; ++seed) {
    request.mutable_sampling()->set_seed(seed);
    const Turn turn = peer_->Generate(request);
    EXPECT_TRUE(std::regex_match(turn.text, std::regex("[0-9]{3}"))) << turn.text;
  }
  // A penalty that brings back what the grammar excludes is an error, not another text.
  request.mutable_sampling()->set_repetition_penalty(1e-38f);
  const Turn broken = peer_->Generate(request);
  EXPECT_TRUE(!broken.status.ok() || std::regex_match(broken.text, std::regex("[0-9]{3}")));
}

// Log-probabilities are those of the model, as if nothing confined the draw.
TEST_P(StructuredOutputTest, ReportsTheModelsLogprobs) {
  v1::GenerateRequest request = Request(30, 1.0f, 5);
  request.set_logprobs(2);
  request.mutable_structured_output()->set_regex("[0-9]{10}");
  const Turn turn = peer_->Generate(request);
  ASSERT_TRUE(turn.status.ok());
  v1::TokenizeRequest tokenize;
  tokenize.set_text("Once upon a time");
  tokenize.set_add_bos(true);
  grpc::ClientContext tokenizing, context;
  v1::TokenizeResponse prompt;
  ASSERT_TRUE(peer_->inference->Tokenize(&tokenizing, tokenize, &prompt).ok());
  v1::ScoreRequest score;
  *score.mutable_token_ids()->mutable_ids() = prompt.token_ids();
  for (const uint32_t token : turn.tokens) score.mutable_token_ids()->add_ids(token);
  score.set_top_logprobs(2);
  v1::ScoreResponse scored;
  ASSERT_TRUE(peer_->inference->Score(&context, score, &scored).ok());
  ASSERT_GE(scored.tokens_size(), static_cast<int>(turn.logprobs.size()));
  const int first = scored.tokens_size() - static_cast<int>(turn.logprobs.size());
  for (size_t i = 0; i < turn.logprobs.size(); ++i) {
    EXPECT_EQ(turn.logprobs[i], scored.tokens(first + static_cast<int>(i)).SerializeAsString());
  }
}

// A grammar holds for its turn alone, and for each of n completions.
TEST_P(StructuredOutputTest, HoldsForOneTurnOfASession) {
  grpc::ClientContext context;
  v1::Session session;
  ASSERT_TRUE(peer_->sessions->CreateSession(&context, {}, &session).ok());
  v1::GenerateRequest request = Request(50, 1.0f, 2);
  request.set_session_id(session.id());
  request.mutable_structured_output()->set_regex(" [0-9]{4}");
  EXPECT_TRUE(std::regex_match(peer_->Generate(request).text, std::regex(" [0-9]{4}")));
  request.clear_structured_output();
  request.set_prompt(" he");
  const Turn free = peer_->Generate(request);
  EXPECT_TRUE(free.status.ok());
  EXPECT_FALSE(std::regex_match(free.text, std::regex(" [0-9]{4}")));
}

TEST_P(StructuredOutputTest, RefusesByName) {
  const auto refusal = [this](auto set) {
    v1::GenerateRequest request = Request(5, 1.0f, 1);
    set(*request.mutable_structured_output());
    const grpc::Status status = peer_->Generate(request).status;
    return std::to_string(status.error_code()) + " " + status.error_message();
  };
  const std::string wrong = std::to_string(grpc::StatusCode::INVALID_ARGUMENT);
  const std::string unserved = std::to_string(grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(refusal([](auto& s) { s.set_regex("(a"); }),
            wrong + " structured_output.regex: a ) is missing, at byte 2");
  EXPECT_TRUE(refusal([](auto& s) { s.set_regex("a(?=b)"); }).starts_with(unserved));
  EXPECT_TRUE(refusal([](auto& s) { s.set_json_schema(R"({"not": {}})"); }).starts_with(unserved));
  EXPECT_TRUE(refusal([](auto& s) { s.set_json_schema("{"); }).starts_with(wrong));
  EXPECT_TRUE(refusal([](auto& s) { s.set_json_object(false); }).starts_with(wrong));
  EXPECT_TRUE(refusal([](auto& s) { s.mutable_choices(); }).starts_with(wrong));
  EXPECT_TRUE(refusal([](auto& s) { s.mutable_choices()->add_strings(""); }).starts_with(wrong));
  EXPECT_TRUE(refusal([](auto& s) { s.set_grammar("root ::= root"); }).starts_with(wrong));
  EXPECT_TRUE(refusal([](auto&) {}).starts_with(wrong));
}

}  // namespace
}  // namespace rivulet::e2e
