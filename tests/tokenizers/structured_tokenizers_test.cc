// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Grammars over the vocabulary of each family's small tokenizer: what random tokens write, out of
// those that may come, is text that matches.
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "nlohmann/json.hpp"
#include "server/grammar/grammar_store.h"
#include "server/text/detokenizer.h"
#include "tests/tokenizers/families.h"

namespace rivulet {
namespace {

constexpr char kSchema[] = R"({"type": "object", "properties": {
    "text": {"type": "string", "minLength": 1, "maxLength": 40},
    "numbers": {"type": "array", "items": {"type": "number"}, "maxItems": 4},
    "kind": {"enum": ["é", "日本", null]}}, "required": ["text", "kind"]})";

class StructuredTokenizersTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto tokenizer = LoadTokenizer(TokenizerFixtures() + "/" + GetParam());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    for (uint32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      const std::string_view bytes = tokenizer_->TokenBytes(id);
      if (bytes.find_first_of("\"}]") != bytes.npos) enders_.push_back(id);
    }
  }

  // Empty if it does not end. Tokens that may end something come often.
  std::string Write(const std::shared_ptr<TokenGrammar>& grammar, bool starts_text,
                    std::mt19937& random) const {
    GrammarMatcher matcher(grammar, starts_text);
    std::vector<uint32_t> ids;
    for (int step = 0; step < 400 && !matcher.is_complete(); ++step) {
      const auto allowed = matcher.Allowed({});
      if (!allowed.ok()) return "";  // a vocabulary may lack a character
      std::vector<uint32_t> good;
      for (uint32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
        if (allowed->Contains(id)) good.push_back(id);
      }
      std::vector<uint32_t> ending;
      for (const uint32_t id : enders_) {
        if (allowed->Contains(id)) ending.push_back(id);
      }
      const std::vector<uint32_t>& from = ending.empty() || random() % 3 != 0 ? good : ending;
      ids.push_back(from[random() % from.size()]);
      EXPECT_TRUE(matcher.Accept(ids.back()).ok());
    }
    return matcher.is_complete() ? Detokenize(*tokenizer_, ids, starts_text) : "";
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<uint32_t> enders_;
};

TEST_P(StructuredTokenizersTest, WhatIsWrittenMatches) {
  std::mt19937 random(TestSeed());
  GrammarStore grammars(*tokenizer_);
  const auto grammar = grammars.Get(GrammarKind::kJsonSchema, kSchema);
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  int ended = 0;
  for (int round = 0; round < 20; ++round) {
    const std::string text = Write(*grammar, round % 2 == 0, random);
    if (text.empty()) continue;
    ++ended;
    const auto value = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_TRUE(value["text"].is_string() && value.contains("kind")) << text;
  }
  // These write a space before most words and signs, so that they cannot write "text".
  const bool can = GetParam() != "bert" && GetParam() != "words";
  EXPECT_EQ(ended > 0, can);
}

INSTANTIATE_TEST_SUITE_P(Families, StructuredTokenizersTest, testing::ValuesIn(TokenizerFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rivulet
