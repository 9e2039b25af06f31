// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// BPE against its definition, on random merges: short pieces, long ones, those that are cut and
// those that are encoded in windows, with and without unknown characters.
#include <map>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/test_seed.h"
#include "model_loader/hf_tokenizer/subword_model.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using testing::HasSubstr;

constexpr char kUnknown[] = "?";

struct RandomModel {
  std::map<std::string, uint32_t> ids;
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_unknown = false, fuses = false;
  std::vector<std::string> tokens;
};

// Letters, and merges of random tokens, in any order: also such that no training would find.
RandomModel MakeModel(std::mt19937& random) {
  RandomModel model;
  model.has_unknown = random() % 2 == 0;
  model.fuses = random() % 2 == 0;
  std::vector<std::string> tokens = {"a", "b", "c", "\u00e9", "\u4e00"};
  const bool unknown_joins = random() % 4 == 0;
  if (unknown_joins) tokens.push_back(kUnknown);
  const size_t longest = random() % 2 == 0 ? 12 : 300;
  for (int i = 0; i < 40; ++i) {
    const size_t oldest = longest == 12 ? 0 : tokens.size() / 2;
    const std::string left = tokens[oldest + random() % (tokens.size() - oldest)];
    const std::string right = tokens[oldest + random() % (tokens.size() - oldest)];
    if (left.size() + right.size() > longest) continue;
    model.merges.emplace_back(left, right);
    tokens.push_back(left + right);
  }
  std::shuffle(model.merges.begin(), model.merges.end(), random);
  model.tokens = tokens;
  tokens.push_back(kUnknown);
  for (const std::string& token : tokens) {
    model.ids.emplace(token, static_cast<uint32_t>(model.ids.size()));
  }
  return model;
}

std::unique_ptr<const SubwordModel> Load(const RandomModel& model) {
  nlohmann::json json = {{"type", "BPE"}, {"vocab", model.ids}, {"fuse_unk", model.fuses}};
  if (model.has_unknown) json["unk_token"] = kUnknown;
  json["merges"] = nlohmann::json::array();
  for (const auto& [left, right] : model.merges) json["merges"].push_back({left, right});
  auto loaded = ParseSubwordModel(json);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return *std::move(loaded);
}

// Joins the pair of the best merge, leftmost first, until there is none.
std::vector<uint32_t> Definition(const RandomModel& model, std::vector<std::string> symbols) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;  // of equal merges the last counts
  for (size_t i = 0; i < model.merges.size(); ++i) ranks[model.merges[i]] = i;
  for (;;) {
    size_t best = SIZE_MAX, place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = ranks.find({symbols[i], symbols[i + 1]});
      if (rank == ranks.end() || rank->second >= best) continue;
      best = rank->second;
      place = i;
    }
    if (best == SIZE_MAX) break;
    symbols[place] += symbols[place + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
  std::vector<uint32_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(model.ids.at(symbol));
  return ids;
}

struct Piece {
  std::string text;
  std::vector<std::string> symbols;
};

void AddCharacter(const RandomModel& model, const std::string& character, Piece* piece) {
  piece->text += character;
  if (character != "x") {
    piece->symbols.push_back(character);
  } else if (model.has_unknown && !(model.fuses && piece->text.ends_with("xx"))) {
    piece->symbols.push_back(kUnknown);
  }
}

// Of tokens' texts, in which unknown characters stand for unknown tokens. One more character in
// `rare` is unknown.
Piece MakePiece(const RandomModel& model, size_t length, unsigned rare, std::mt19937& random) {
  Piece piece;
  while (piece.symbols.size() < length) {
    const std::string& token = model.tokens[random() % model.tokens.size()];
    for (size_t i = 0; i < token.size();) {
      const size_t begin = i;
      static_cast<void>(NextCodePoint(token, &i));
      const std::string character = token.substr(begin, i - begin);
      AddCharacter(model, character == kUnknown ? "x" : character, &piece);
      if (random() % rare == 0) AddCharacter(model, "x", &piece);
    }
  }
  return piece;
}

TEST(BpeTest, DoesWhatTheDefinitionSays) {
  std::mt19937 random(TestSeed());
  for (int i = 0; i < 300; ++i) {
    const RandomModel model = MakeModel(random);
    const auto loaded = Load(model);
    const auto encoder = loaded->NewEncoder();
    for (int j = 0; j < 20; ++j) {
      const size_t length = 1 + random() % (j == 0 ? 700 : 90);
      const Piece piece = MakePiece(model, length, j % 2 == 0 ? 20 : 2000, random);
      std::vector<uint32_t> ids;
      ASSERT_TRUE(encoder->Append(piece.text, &ids).ok());
      ASSERT_EQ(ids, Definition(model, piece.symbols)) << piece.text;
    }
  }
}

// Quadratic merging would take minutes.
TEST(BpeTest, MergesALongPieceInTime) {
  RandomModel model;
  model.merges = {{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}};
  for (const char* token : {"a", "aa", "aaaa", "aaaaaaaa"})
    model.ids.emplace(token, model.ids.size());
  const auto loaded = Load(model);
  std::vector<uint32_t> ids;
  ASSERT_TRUE(loaded->NewEncoder()->Append(std::string(1 << 20, 'a'), &ids).ok());
  EXPECT_EQ(ids.size(), (1u << 20) / 8);
}

// A merge that makes what it is made of, or stands before the merge that makes its parts.
TEST(BpeTest, MergesInACircleEnd) {
  RandomModel model;
  model.ids = {{"", 0}, {"a", 1}, {"aa", 2}, {"aaa", 3}};
  model.merges = {{"", "a"}, {"a", ""}, {"", ""}, {"aa", "a"}, {"a", "aa"}, {"a", "a"}};
  const auto loaded = Load(model);
  const auto encoder = loaded->NewEncoder();
  for (const size_t length : {1u, 2u, 3u, 24u, 25u, 100u, 1000u, 1001u}) {
    std::vector<uint32_t> ids;
    ASSERT_TRUE(encoder->Append(std::string(length, 'a'), &ids).ok());
    EXPECT_EQ(ids, Definition(model, std::vector<std::string>(length, "a"))) << length;
  }
}

std::string ErrorOf(const char* json) {
  return ParseSubwordModel(nlohmann::json::parse(json)).status().ToString();
}

TEST(BpeTest, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":0},"merges":[["a","b"]]})"),
              HasSubstr("the token \"b\" is not in the vocabulary"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":0,"b":1},"merges":[["a","b"]]})"),
              HasSubstr("\"ab\" is not in the vocabulary"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"), HasSubstr("merge 0"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":0},"merges":["a a a"]})"),
              HasSubstr("merge 0"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":0,"b":0},"merges":[]})"),
              HasSubstr("have the same id, 0"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":4000000000},"merges":[]})"),
              HasSubstr("beyond the limit"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"), HasSubstr("-1"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{},"merges":[],"dropout":0.1})"),
              HasSubstr("dropout"));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":{},"merges":[],"unk_token":"?"})"),
              HasSubstr("\"?\""));
  EXPECT_THAT(ErrorOf(R"({"type":"BPE","vocab":[]})"), HasSubstr("vocab"));
  EXPECT_THAT(ErrorOf(R"({"type":"Tiktoken"})"), HasSubstr("Tiktoken"));
  EXPECT_THAT(ErrorOf(R"({"type":"Unigram","vocab":[["a",0],["a",1]]})"), HasSubstr("twice"));
  EXPECT_THAT(ErrorOf(R"({"type":"Unigram","vocab":[["a",0]],"unk_id":7})"), HasSubstr("unk_id"));
}

TEST(BpeTest, NeedsATokenForUnknownText) {
  const auto unigram =
      ParseSubwordModel(nlohmann::json::parse(R"({"type":"Unigram","vocab":[["a",0]]})"));
  ASSERT_TRUE(unigram.ok());
  std::vector<uint32_t> ids;
  const absl::Status status = (*unigram)->NewEncoder()->Append("ab", &ids);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("no token for \"b\""));
}

}  // namespace
}  // namespace rivulet
