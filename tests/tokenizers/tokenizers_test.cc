// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Small tokenizers of each family against what the `tokenizers` package makes of the same texts
// (make_fixtures.py): ids, text from ids, and the same text from any stream of them.
#include <algorithm>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/utf8.h"
#include "model_loader/tokenizer.h"
#include "nlohmann/json.hpp"
#include "server/text/detokenizer.h"
#include "tests/tokenizers/families.h"

namespace rivulet {
namespace {

using Ids = std::vector<uint32_t>;

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

class TokenizersTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string directory = TokenizerFixtures() + "/" + GetParam();
    auto tokenizer = LoadTokenizer(directory);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    vectors_ = ReadJson(directory + "/vectors.json");
    texts_ = ReadJson(TokenizerFixtures() + "/texts.json").get<std::vector<std::string>>();
    ASSERT_EQ(vectors_["cases"].size(), texts_.size());
  }

  // In pieces of random length.
  std::string Stream(const Ids& ids) {
    Detokenizer detokenizer(*tokenizer_, /*starts_text=*/true);
    std::string text;
    for (size_t i = 0; i < ids.size();) {
      const size_t count = std::min<size_t>(1 + random_() % 3, ids.size() - i);
      const std::string delta = detokenizer.Append(std::span(ids).subspan(i, count));
      EXPECT_EQ(ValidUtf8Length(delta), delta.size());
      text += delta;
      i += count;
    }
    return text + detokenizer.Finish();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  nlohmann::json vectors_;
  std::vector<std::string> texts_;
  std::mt19937 random_{TestSeed()};
};

TEST_P(TokenizersTest, GivesTheSameIds) {
  for (size_t i = 0; i < texts_.size(); ++i) {
    const nlohmann::json& expected = vectors_["cases"][i];
    const auto ids = tokenizer_->Encode(texts_[i]);
    ASSERT_TRUE(ids.ok()) << ids.status() << "\n" << texts_[i];
    EXPECT_EQ(*ids, expected["ids"].get<Ids>()) << texts_[i];
    const auto rendered = tokenizer_->EncodeRendered(texts_[i]);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    const char* const key = expected.contains("rendered") ? "rendered" : "ids";
    EXPECT_EQ(*rendered, expected[key].get<Ids>()) << texts_[i];
  }
}

TEST_P(TokenizersTest, GivesTheSameText) {
  for (const nlohmann::json& expected : vectors_["cases"]) {
    EXPECT_EQ(Stream(expected["ids"].get<Ids>()), expected["text"].get<std::string>());
  }
  for (const nlohmann::json& expected : vectors_["decoded"]) {
    EXPECT_EQ(Stream(expected[0].get<Ids>()), expected[1].get<std::string>()) << expected[0];
  }
}

TEST_P(TokenizersTest, StreamsWhatTheWholeDecodesTo) {
  for (int i = 0; i < 200; ++i) {
    Ids ids(random_() % 20);
    for (uint32_t& id : ids) id = static_cast<uint32_t>(random_() % tokenizer_->vocab_size());
    EXPECT_EQ(Stream(ids), Detokenize(*tokenizer_, ids, /*starts_text=*/true));
  }
}

TEST_P(TokenizersTest, BeginsAContextAsThePostProcessorDoes) {
  ASSERT_TRUE(tokenizer_->begin_ids().has_value());
  EXPECT_EQ(*tokenizer_->begin_ids(), vectors_["before"].get<Ids>());
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizersTest, testing::ValuesIn(TokenizerFamilies()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rivulet
