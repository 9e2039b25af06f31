// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// WordPiece: the longest token that a word begins with, then the longest that continues it, and so
// on; a word that does not come out is unknown as a whole. WordLevel: a word is a token or unknown.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/prefix_trie.h"
#include "model_loader/hf_tokenizer/subword_model.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

class WordPiece : public SubwordModel {
 public:
  static absl::StatusOr<std::unique_ptr<const SubwordModel>> Parse(const nlohmann::json& json,
                                                                   bool whole_words);

  std::unique_ptr<Encoder> NewEncoder() const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  absl::Status Append(std::string_view word, std::vector<uint32_t>* ids) const;

 private:
  absl::Status ReadOptions(const nlohmann::json& json);
  void MakeTrie();
  bool AppendParts(std::string_view word, std::vector<uint32_t>* ids) const;
  uint32_t TakeLongest(uint32_t node, std::string_view* word) const;
  absl::Status AppendUnknown(std::string_view word, std::vector<uint32_t>* ids) const;

  bool whole_words_ = false;
  Vocabulary vocabulary_;
  std::string unknown_, prefix_;
  size_t most_characters_ = 0;
  std::unique_ptr<const PrefixTrie> trie_;
  uint32_t continuing_ = PrefixTrie::kNone;  // the node of prefix_
};

class WordEncoder : public SubwordModel::Encoder {
 public:
  explicit WordEncoder(const WordPiece& model) : model_(model) {}
  absl::Status Append(std::string_view piece, std::vector<uint32_t>* ids) override {
    return model_.Append(piece, ids);
  }

 private:
  const WordPiece& model_;
};

std::unique_ptr<SubwordModel::Encoder> WordPiece::NewEncoder() const {
  return std::make_unique<WordEncoder>(*this);
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); i += Utf8Length(text[i])) ++count;
  return count;
}

absl::Status WordPiece::Append(std::string_view word, std::vector<uint32_t>* ids) const {
  if (whole_words_) {
    const std::optional<uint32_t> id = vocabulary_.Find(word);
    if (!id.has_value()) return AppendUnknown(word, ids);
    ids->push_back(*id);
    return absl::OkStatus();
  }
  const size_t before = ids->size();
  if (CountCharacters(word) <= most_characters_ && AppendParts(word, ids)) return absl::OkStatus();
  ids->resize(before);
  return AppendUnknown(word, ids);
}

bool WordPiece::AppendParts(std::string_view word, std::vector<uint32_t>* ids) const {
  uint32_t node = PrefixTrie::kRoot;
  while (!word.empty()) {
    const uint32_t id = node == PrefixTrie::kNone ? kNoToken : TakeLongest(node, &word);
    if (id == kNoToken) return false;
    ids->push_back(id);
    node = continuing_;
  }
  return true;
}

// Removes from `word` the longest token that it begins with, seen from `node`.
uint32_t WordPiece::TakeLongest(uint32_t node, std::string_view* word) const {
  uint32_t id = kNoToken;
  size_t length = 0;
  for (size_t i = 0; i < word->size(); ++i) {
    node = trie_->Next(node, (*word)[i]);
    if (node == PrefixTrie::kNone) break;
    if (trie_->Value(node) == PrefixTrie::kNone) continue;
    id = trie_->Value(node);
    length = i + 1;
  }
  word->remove_prefix(length);
  return id;
}

absl::Status WordPiece::AppendUnknown(std::string_view word, std::vector<uint32_t>* ids) const {
  const std::optional<uint32_t> id = vocabulary_.Find(unknown_);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the tokenizer has no token for \"", ToAbsl(word.substr(0, 64)),
                     "\" and none for unknown text (\"", unknown_, "\")"));
  }
  ids->push_back(*id);
  return absl::OkStatus();
}

absl::Status WordPiece::ReadOptions(const nlohmann::json& json) {
  ConfigReader reader(json);
  unknown_ = reader.String("unk_token", whole_words_ ? "<unk>" : "[UNK]");
  prefix_ = reader.String("continuing_subword_prefix", "##");
  most_characters_ = reader.Size("max_input_chars_per_word", 100, 0);
  return reader.status();
}

void WordPiece::MakeTrie() {
  std::vector<std::pair<std::string_view, uint32_t>> tokens;
  for (uint32_t id = 0; id < vocabulary_.end_id(); ++id) {
    if (!vocabulary_.Token(id).empty()) tokens.emplace_back(vocabulary_.Token(id), id);
  }
  trie_ = std::make_unique<PrefixTrie>(std::move(tokens));
  continuing_ = PrefixTrie::kRoot;
  for (const char byte : prefix_) {
    if (continuing_ != PrefixTrie::kNone) continuing_ = trie_->Next(continuing_, byte);
  }
}

absl::StatusOr<std::unique_ptr<const SubwordModel>> WordPiece::Parse(const nlohmann::json& json,
                                                                     bool whole_words) {
  auto model = std::make_unique<WordPiece>();
  model->whole_words_ = whole_words;
  RIVULET_RETURN_IF_ERROR(ReadVocabulary(json, &model->vocabulary_));
  RIVULET_RETURN_IF_ERROR(model->ReadOptions(json));
  model->MakeTrie();
  return model;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseWordPiece(const nlohmann::json& json) {
  return WordPiece::Parse(json, /*whole_words=*/false);
}

absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseWordLevel(const nlohmann::json& json) {
  return WordPiece::Parse(json, /*whole_words=*/true);
}

}  // namespace rivulet
