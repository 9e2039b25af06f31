// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a tokenizer.json may do to us. That ids and text are right: tests/tokenizers.
#include "model_loader/hf_tokenizer/hf_tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "model_loader/json.h"
#include "model_loader/testing.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Words of three letters, and two added tokens.
nlohmann::json Words() {
  return nlohmann::json::parse(R"({
    "added_tokens": [{"id": 3, "content": "<end>", "special": true, "normalized": false},
                     {"id": 4, "content": "<think>", "special": false, "normalized": false}],
    "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null,
    "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}})");
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Make(
    const nlohmann::json& tokenizer, const nlohmann::json& config = nlohmann::json::object()) {
  return MakeHfTokenizer(tokenizer, config, nlohmann::json::object());
}

std::string ErrorWith(const char* key, const char* value) {
  nlohmann::json json = Words();
  json[key] = nlohmann::json::parse(value);
  return Make(json).status().ToString();
}

TEST(HfTokenizerTest, RecognisesSpecialTokensOnlyInRenderedText) {
  const auto tokenizer = Make(Words());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("a <end> b<think>"), ElementsAre(0, 2, 1, 4));
  EXPECT_THAT(*(*tokenizer)->EncodeRendered("a <end> b<think>"), ElementsAre(0, 3, 1, 4));
  EXPECT_EQ((*tokenizer)->TokenBytes(3), "");
  EXPECT_EQ((*tokenizer)->TokenBytes(4), " <think>");
  EXPECT_EQ((*tokenizer)->Piece(3), "<end>");
  EXPECT_FALSE((*tokenizer)->Encode("\xff").ok());
  EXPECT_THAT(*(*tokenizer)->Encode(""), IsEmpty());
}

// Ids of a text in which "{" and "}" stand around what is plain.
std::vector<uint32_t> IdsOf(const Tokenizer& tokenizer, std::string_view shown) {
  MarkedText text;
  for (bool plain = false; !shown.empty(); plain = !plain) {
    const size_t end = std::min(shown.find(plain ? '}' : '{'), shown.size());
    text.Append(MarkedText::Of(std::string(shown.substr(0, end)), plain));
    shown.remove_prefix(std::min(end + 1, shown.size()));
  }
  const auto ids = tokenizer.EncodeMarked(text.bytes, text.plain);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.value_or(std::vector<uint32_t>());
}

TEST(HfTokenizerTest, RecognisesNoSpecialTokenWithAPlainByte) {
  const auto tokenizer = *Make(Words());
  EXPECT_THAT(IdsOf(*tokenizer, "<end>{<end>}<end>"), ElementsAre(3, 2, 3));
  EXPECT_THAT(IdsOf(*tokenizer, "a {<en}d> b"), ElementsAre(0, 2, 1)) << "begun by the user";
  EXPECT_THAT(IdsOf(*tokenizer, "a <{end}> b"), ElementsAre(0, 2, 1)) << "the template's brackets";
  EXPECT_THAT(IdsOf(*tokenizer, "{<en}{d>}"), ElementsAre(2)) << "in two parts of a message";
  EXPECT_THAT(IdsOf(*tokenizer, "{a}<end>{b}"), ElementsAre(0, 3, 1));
  EXPECT_THAT(IdsOf(*tokenizer, "{<think>}"), ElementsAre(4)) << "it is not special";
  EXPECT_THAT(IdsOf(*tokenizer, "{<}<end>"), ElementsAre(2, 3));
}

// A user's text beside a special token cannot make a longer one of it, or hide it.
TEST(HfTokenizerTest, PlainTextDoesNotChangeTheTokensBesideIt) {
  nlohmann::json json = Words();
  json["added_tokens"].push_back({{"id", 5}, {"content", "<end>b"}, {"special", true}});
  json["added_tokens"].push_back({{"id", 6}, {"content", "b<end"}, {"special", true}});
  const auto tokenizer = *Make(json);
  EXPECT_THAT(*tokenizer->EncodeRendered("<end>b"), ElementsAre(5));
  EXPECT_THAT(IdsOf(*tokenizer, "<end>{b}"), ElementsAre(3, 1));
  EXPECT_THAT(*tokenizer->EncodeRendered("b<end>"), ElementsAre(6, 2));
  EXPECT_THAT(IdsOf(*tokenizer, "{b}<end>"), ElementsAre(1, 3));
}

// Special tokens that are looked for in normalized text. "é" has two bytes, and "e\u0301" becomes
// it: places in the normalized text are not those in the text.
TEST(HfTokenizerTest, MarksFollowNormalizedText) {
  nlohmann::json json = Words();
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "NFC"}}, {{"type", "Strip"}}, {{"type", "Prepend"}, {"prepend", "a "}}}}};
  json["added_tokens"][0]["normalized"] = true;
  const auto tokenizer = *Make(json);
  // "<end>" itself is normalized too: it is looked for as "a <end>".
  EXPECT_THAT(*tokenizer->EncodeRendered("<end>"), ElementsAre(3));
  json["normalizer"]["normalizers"].erase(2);
  const auto stripping = *Make(json);
  EXPECT_THAT(IdsOf(*stripping, " {e\u0301e\u0301 <end>} <end>{ b <end> b} <end> "),
              ElementsAre(2, 2, 3, 1, 2, 1, 3));
  EXPECT_THAT(IdsOf(*stripping, "a<end>{\u0338 b}"), ElementsAre(0, 3, 2, 1))
      << "U+0338 would make another character of >";
  EXPECT_THAT(*stripping->EncodeRendered("a<end>\u0338 b"), ElementsAre(2, 1));
}

// A text of so many pieces that the parts of a sequence get it in several lists. Only the first
// word begins the text.
TEST(HfTokenizerTest, LongTextsAreCutLikeShortOnes) {
  nlohmann::json json = Words();
  json["pre_tokenizer"] = nlohmann::json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "WhitespaceSplit"},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": false}]})");
  json["model"]["vocab"] = nlohmann::json::parse(R"({"a": 0, "b": 1, "?": 2, "_a": 5})");
  json["added_tokens"] = nlohmann::json::array();
  const auto tokenizer = Make(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::string text;
  std::vector<uint32_t> expected;
  for (uint32_t i = 0; i < 5000; ++i) {
    text += i % 3 == 0 ? "a " : "b ";
    expected.push_back(i == 0 ? 5 : i % 3 == 0 ? 0 : 1);
  }
  EXPECT_EQ(*(*tokenizer)->Encode(text), expected);
}

TEST(HfTokenizerTest, ReadsTheOtherFiles) {
  nlohmann::json config = {{"eos_token", {{"content", "<end>"}}}, {"bos_token", "b"}};
  config["added_tokens_decoder"] = {{"5", {{"content", "<more>"}, {"special", true}}}};
  auto tokenizer = Make(Words(), config);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->eos_id(), 3);
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_THAT(*(*tokenizer)->begin_ids(), IsEmpty());  // the post-processor adds none
  EXPECT_THAT(*(*tokenizer)->EncodeRendered("<more>"), ElementsAre(5));
  config["add_bos_token"] = true;
  tokenizer = Make(Words(), config);
  EXPECT_THAT(*(*tokenizer)->begin_ids(), ElementsAre(1));
}

TEST(HfTokenizerTest, RefusesByName) {
  EXPECT_THAT(ErrorWith("normalizer", R"({"type":"Custom"})"),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("Custom")));
  EXPECT_THAT(ErrorWith("pre_tokenizer", R"({"type":"UnicodeScripts"})"),
              HasSubstr("UnicodeScripts"));
  EXPECT_THAT(ErrorWith("decoder", R"({"type":"CTC"})"), HasSubstr("the decoder CTC"));
  EXPECT_THAT(ErrorWith("post_processor", R"({"type":"Other"})"), HasSubstr("Other"));
  EXPECT_THAT(ErrorWith("decoder",
                        R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Metaspace"}]})"),
              HasSubstr("Metaspace after Fuse"));
  EXPECT_THAT(ErrorWith("pre_tokenizer",
                        R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":"(a"}})"),
              HasSubstr("(a"));
  EXPECT_THAT(
      ErrorWith("pre_tokenizer", R"({"type":"Split","behavior":"Odd","pattern":{"String":"a"}})"),
      HasSubstr("behavior"));
}

TEST(HfTokenizerTest, RefusesWrongIds) {
  EXPECT_THAT(ErrorWith("added_tokens", R"([{"id":9,"content":"<x>"}])"), HasSubstr("has id 9"));
  EXPECT_THAT(ErrorWith("added_tokens", R"([{"id":0,"content":"<x>"}])"), HasSubstr("unique"));
  EXPECT_THAT(ErrorWith("added_tokens", R"([{"id":2,"content":"b"}])"), HasSubstr("has id 2"));
  EXPECT_THAT(ErrorWith("added_tokens", R"([{"id":"3","content":"<x>"}])"), HasSubstr("id is"));
  EXPECT_THAT(ErrorWith("added_tokens", R"({"id":3})"), HasSubstr("no list"));
  EXPECT_THAT(
      ErrorWith("post_processor", R"({"type":"BertProcessing","sep":["b",77],"cls":["a",0]})"),
      HasSubstr("77"));
  EXPECT_THAT(
      ErrorWith("post_processor",
                R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}}]})"),
      HasSubstr("<s>"));
}

// Each step doubles the text.
TEST(HfTokenizerTest, BoundsWhatANormalizerMakes) {
  nlohmann::json steps = nlohmann::json::array();
  for (int i = 0; i < 60; ++i) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  }
  nlohmann::json json = Words();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", steps}};
  const auto tokenizer = Make(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT((*tokenizer)->Encode("aaa").status().ToString(),
              HasSubstr("normalizer makes more than"));
}

TEST(HfTokenizerTest, SaysWhichFileIsWrong) {
  const std::string directory = TestDirectory();
  EXPECT_EQ(LoadTokenizer(directory).status().code(), absl::StatusCode::kNotFound);
  WriteTestFile(directory + "/tokenizer.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(LoadTokenizer(directory).status().ToString(), HasSubstr("tokenizer.json"));
  WriteTestFile(directory + "/tokenizer.json", std::string(100 << 20, ' '));
  EXPECT_THAT(LoadTokenizer(directory).status().ToString(), HasSubstr("the limit is"));
  WriteTestFile(directory + "/tokenizer.json", R"({"model":{"type":"Tiktoken"}})");
  EXPECT_EQ(LoadTokenizer(directory).status().code(), absl::StatusCode::kUnimplemented);
  TrainTestTokenizer(directory, "");  // then tokenizer.model serves
  EXPECT_TRUE(LoadTokenizer(directory).ok());
}

std::string Fixture(const std::string& name) {
  const char* const root = std::getenv("RIVULET_SOURCE_DIR");
  const std::string path =
      std::string(root == nullptr ? "." : root) + "/tests/tokenizers/fixtures/";
  std::ifstream file(path + name + "/tokenizer.json");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A tokenizer or a status, and ids or a status; never an end of the process.
TEST(HfTokenizerTest, SurvivesRandomDamage) {
  std::mt19937 random(TestSeed());
  int refused = 0, used = 0;
  for (const char* name : {"qwen35", "llama2", "unigram", "clip", "words", "nfkc"}) {
    const std::string whole = Fixture(name);
    ASSERT_FALSE(whole.empty());
    for (int i = 0; i < 40; ++i) {
      std::string damaged = whole;
      for (unsigned flips = 1 + random() % 6; flips-- > 0;) {
        damaged[random() % damaged.size()] = "0aZ\"{[,:-}"[random() % 10];
      }
      const auto json = ParseJson(damaged, "damaged");
      const auto tokenizer = json.ok() ? Make(*json) : json.status();
      ++(tokenizer.ok() ? used : refused);
      if (tokenizer.ok())
        static_cast<void>((*tokenizer)->EncodeRendered("The Fox \u00e9\ufb01 <s> 123\n"));
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(used, 5);
}

}  // namespace
}  // namespace rivulet
