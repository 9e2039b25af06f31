// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The Unigram model: of all ways to cut a piece into tokens, the one whose scores have the largest
// sum, found from left to right (Viterbi). Of equal sums the one found first counts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/prefix_trie.h"
#include "model_loader/hf_tokenizer/subword_model.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr double kUnknownPenalty = 10;  // below the worst token

class Unigram : public SubwordModel {
 public:
  static absl::StatusOr<std::unique_ptr<const SubwordModel>> Parse(const nlohmann::json& json);

  std::unique_ptr<Encoder> NewEncoder() const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  friend class UnigramEncoder;
  absl::Status ReadTokens(const nlohmann::json& json);
  absl::Status ReadOptions(const nlohmann::json& json);
  void MakeTrie();

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  uint32_t unknown_ = kNoToken;
  std::vector<uint32_t> byte_tokens_;  // empty: no byte fallback
  std::unique_ptr<const PrefixTrie> trie_;
};

class UnigramEncoder : public SubwordModel::Encoder {
 public:
  explicit UnigramEncoder(const Unigram& model) : model_(model) {}

  absl::Status Append(std::string_view piece, std::vector<uint32_t>* ids) override {
    best_.assign(piece.size() + 1, Ending());
    for (size_t i = 0; i < piece.size();) {
      const size_t character = Utf8Length(piece[i]);
      if (!TryTokens(piece, i, character)) {
        if (model_.unknown_ == kNoToken) return NoUnknown(piece.substr(i, character));
        Improve(i, i + character, model_.unknown_score_, model_.unknown_);
      }
      i += character;
    }
    return TakeBest(piece, ids);
  }

 private:
  struct Ending {
    double score = 0;
    uint32_t begin = kNoToken;  // of its last token; kNoToken: not reached
    uint32_t id = 0;
  };

  // False if none of them is a single character.
  bool TryTokens(std::string_view piece, size_t begin, size_t character) {
    bool single = false;
    uint32_t node = PrefixTrie::kRoot;
    for (size_t i = begin; i < piece.size(); ++i) {
      node = model_.trie_->Next(node, piece[i]);
      if (node == PrefixTrie::kNone) break;
      const uint32_t id = model_.trie_->Value(node);
      if (id == PrefixTrie::kNone) continue;
      Improve(begin, i + 1, model_.scores_[id], id);
      single = single || i + 1 - begin == character;
    }
    return single;
  }

  void Improve(size_t begin, size_t end, double score, uint32_t id) {
    const double sum = score + best_[begin].score;
    Ending& ending = best_[end];
    if (ending.begin != kNoToken && sum <= ending.score) return;
    ending = {sum, static_cast<uint32_t>(begin), id};
  }

  // From the end to the start; unknown parts in a row are one.
  absl::Status TakeBest(std::string_view piece, std::vector<uint32_t>* ids) {
    parts_.clear();
    bool last_unknown = false;
    for (size_t end = piece.size(); end > 0;) {
      const Ending& ending = best_[end];
      const bool unknown = ending.id == model_.unknown_;
      if (unknown && last_unknown) {
        parts_.back().begin = ending.begin;
      } else {
        parts_.push_back({ending.begin, static_cast<uint32_t>(end), ending.id, unknown});
      }
      last_unknown = unknown;
      end = ending.begin;
    }
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      if (part->unknown) {
        AppendUnknown(piece.substr(part->begin, part->end - part->begin), ids);
      } else {
        ids->push_back(part->id);
      }
    }
    return absl::OkStatus();
  }

  // What was put together from unknown parts may be a token after all.
  void AppendUnknown(std::string_view text, std::vector<uint32_t>* ids) {
    const std::optional<uint32_t> known = model_.vocabulary_.Find(text);
    if (known.has_value()) {
      ids->push_back(*known);
    } else if (!AppendBytes(text, ids)) {
      ids->push_back(model_.unknown_);
    }
  }

  bool AppendBytes(std::string_view text, std::vector<uint32_t>* ids) {
    if (model_.byte_tokens_.empty()) return false;
    const size_t before = ids->size();
    for (const char byte : text) {
      ids->push_back(model_.byte_tokens_[static_cast<uint8_t>(byte)]);
      if (ids->back() != kNoToken) continue;
      ids->resize(before);
      return false;
    }
    return true;
  }

  static absl::Status NoUnknown(std::string_view character) {
    return absl::InvalidArgumentError(absl::StrCat("the tokenizer has no token for \"",
                                                   std::string(character),
                                                   "\" and none for unknown text"));
  }

  struct FoundPart {
    uint32_t begin, end, id;
    bool unknown;
  };

  const Unigram& model_;
  std::vector<Ending> best_;  // of each place: of the ways to cut the text before it
  std::vector<FoundPart> parts_;
};

std::unique_ptr<SubwordModel::Encoder> Unigram::NewEncoder() const {
  return std::make_unique<UnigramEncoder>(*this);
}

absl::Status Unigram::ReadTokens(const nlohmann::json& json) {
  const auto vocab = json.find("vocab");
  if (vocab == json.end() || !vocab->is_array() || vocab->empty()) {
    return absl::InvalidArgumentError("the model has no list \"vocab\"");
  }
  double least = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < vocab->size(); ++id) {
    const nlohmann::json& entry = (*vocab)[id];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", id, " of \"vocab\" is no pair [\"token\", score]"));
    }
    const std::string& token = entry[0].get_ref<const std::string&>();
    if (vocabulary_.Find(token).has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("the token \"", token, "\" is there twice"));
    }
    RIVULET_RETURN_IF_ERROR(vocabulary_.Add(token, id));
    scores_.push_back(entry[1].get<double>());
    least = std::min(least, scores_.back());
  }
  unknown_score_ = least - kUnknownPenalty;
  return absl::OkStatus();
}

absl::Status Unigram::ReadOptions(const nlohmann::json& json) {
  ConfigReader reader(json);
  if (reader.Bool("byte_fallback", false)) byte_tokens_ = ByteTokens(vocabulary_);
  if (reader.Has("unk_id")) {
    unknown_ = static_cast<uint32_t>(reader.Size("unk_id", std::nullopt, 0, scores_.size() - 1));
  }
  return reader.status();
}

void Unigram::MakeTrie() {
  std::vector<std::pair<std::string_view, uint32_t>> tokens;
  for (uint32_t id = 0; id < vocabulary_.end_id(); ++id) {
    if (!vocabulary_.Token(id).empty()) tokens.emplace_back(vocabulary_.Token(id), id);
  }
  trie_ = std::make_unique<PrefixTrie>(std::move(tokens));
}

absl::StatusOr<std::unique_ptr<const SubwordModel>> Unigram::Parse(const nlohmann::json& json) {
  auto model = std::make_unique<Unigram>();
  RIVULET_RETURN_IF_ERROR(model->ReadTokens(json));
  RIVULET_RETURN_IF_ERROR(model->ReadOptions(json));
  model->MakeTrie();
  return model;
}

}  // namespace

absl::StatusOr<std::unique_ptr<const SubwordModel>> ParseUnigram(const nlohmann::json& json) {
  return Unigram::Parse(json);
}

}  // namespace rivulet
