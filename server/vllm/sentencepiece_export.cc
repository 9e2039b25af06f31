// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/vllm/sentencepiece_export.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "sentencepiece/model.pb.h"

namespace rivulet::vllm_engine {
namespace {

namespace spm = ::rivulet::sentencepiece;
using Json = nlohmann::json;

constexpr const char* kSpacePiece = "\xe2\x96\x81";  // ▁

bool HasSymbols(const spm::Model& model) {
  return std::any_of(model.pieces().begin(), model.pieces().end(), [](const spm::Piece& piece) {
    return piece.type() == spm::Piece::USER_DEFINED;
  });
}

absl::Status CheckServed(const spm::Model& model) {
  const spm::TrainerSpec& trainer = model.trainer_spec();
  const auto unknown = [](const spm::Piece& piece) { return piece.type() == spm::Piece::UNKNOWN; };
  if (std::count_if(model.pieces().begin(), model.pieces().end(), unknown) != 1) {
    return absl::InvalidArgumentError("tokenizer.model has not one unknown piece");
  }
  const char* what = nullptr;
  if (trainer.model_type() != spm::TrainerSpec::UNIGRAM &&
      trainer.model_type() != spm::TrainerSpec::BPE) {
    what = "a model of words or characters";
  } else if (trainer.treat_whitespace_as_suffix()) {
    what = "spaces as suffixes";
  } else if (!model.normalizer_spec().escape_whitespaces()) {
    what = "spaces that are not escaped";
  } else if (HasSymbols(model) && (model.normalizer_spec().add_dummy_prefix() ||
                                   model.normalizer_spec().remove_extra_whitespaces())) {
    // The other format normalizes what is between them as texts of their own.
    what = "user-defined pieces beside a dummy prefix or spaces that are removed";
  }
  if (what == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.model has ", what, ", which tokenizer.json cannot say"));
}

Json Replace(Json pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

Json Normalizer(const spm::NormalizerSpec& spec) {
  Json steps = Json::array();
  if (!spec.precompiled_charsmap().empty()) {
    steps.push_back({{"type", "Precompiled"},
                     {"precompiled_charsmap", absl::Base64Escape(spec.precompiled_charsmap())}});
  }
  if (spec.remove_extra_whitespaces()) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back(Replace({{"Regex", " {2,}"}}, " "));
  }
  if (spec.add_dummy_prefix()) steps.push_back({{"type", "Prepend"}, {"prepend", kSpacePiece}});
  steps.push_back(Replace({{"String", " "}}, kSpacePiece));
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

Json Decoder(const spm::NormalizerSpec& spec) {
  Json steps = {
      Replace({{"String", kSpacePiece}}, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (spec.add_dummy_prefix()) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

// What is found in a text before it is cut into pieces.
Json AddedTokens(const spm::Model& model) {
  Json tokens = Json::array();
  for (int id = 0; id < model.pieces_size(); ++id) {
    const spm::Piece& piece = model.pieces(id);
    const bool special = piece.type() == spm::Piece::CONTROL;
    if (!special && piece.type() != spm::Piece::USER_DEFINED) continue;
    tokens.push_back({{"id", id},
                      {"content", piece.piece()},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", special}});
  }
  return tokens;
}

Json PostProcessor(const spm::Model& model, const std::vector<uint32_t>& begin_ids) {
  if (begin_ids.empty()) return nullptr;
  Json single = Json::array(), specials = Json::object();
  for (const uint32_t id : begin_ids) {
    const std::string& token = model.pieces(static_cast<int>(id)).piece();
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  }
  Json pair = single;
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(specials)}};
}

// Pairs of pieces that make a piece, in the order in which SentencePiece merges them: by the score
// of what they make.
class Merges {
 public:
  explicit Merges(const spm::Model& model) : model_(model) {
    for (int id = 0; id < model.pieces_size(); ++id) {
      if (Merged(model.pieces(id))) ids_.emplace(model.pieces(id).piece(), id);
    }
  }

  Json List() {
    for (const auto& [piece, id] : ids_) AddSplits(piece, id);
    std::sort(merges_.begin(), merges_.end());
    Json list = Json::array();
    for (const auto& [score, id, left, right] : merges_) {
      list.push_back(absl::StrCat(model_.pieces(left).piece(), " ", model_.pieces(right).piece()));
    }
    return list;
  }

 private:
  static bool Merged(const spm::Piece& piece) {
    return piece.type() == spm::Piece::NORMAL || piece.type() == spm::Piece::USER_DEFINED;
  }

  void AddSplits(const std::string& piece, int id) {
    for (size_t i = 1; i < piece.size(); ++i) {
      const auto left = ids_.find(piece.substr(0, i));
      if (left == ids_.end()) continue;
      const auto right = ids_.find(piece.substr(i));
      if (right == ids_.end()) continue;
      merges_.emplace_back(-model_.pieces(id).score(), id, left->second, right->second);
    }
  }

  const spm::Model& model_;
  std::unordered_map<std::string, int> ids_;
  std::vector<std::tuple<float, int, int, int>> merges_;
};

std::string UnknownPiece(const spm::Model& model) {
  for (const spm::Piece& piece : model.pieces()) {
    if (piece.type() == spm::Piece::UNKNOWN) return piece.piece();
  }
  return "";
}

Json BpeModel(const spm::Model& model) {
  Json vocab = Json::object();
  for (int id = 0; id < model.pieces_size(); ++id) vocab[model.pieces(id).piece()] = id;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", UnknownPiece(model)},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", true},
          {"byte_fallback", model.trainer_spec().byte_fallback()},
          {"vocab", std::move(vocab)},
          {"merges", Merges(model).List()}};
}

Json UnigramModel(const spm::Model& model) {
  Json vocab = Json::array();
  int unknown = 0;
  for (int id = 0; id < model.pieces_size(); ++id) {
    const spm::Piece& piece = model.pieces(id);
    vocab.push_back({piece.piece(), piece.score()});
    if (piece.type() == spm::Piece::UNKNOWN) unknown = id;
  }
  return {{"type", "Unigram"},
          {"unk_id", unknown},
          {"vocab", std::move(vocab)},
          {"byte_fallback", model.trainer_spec().byte_fallback()}};
}

}  // namespace

absl::StatusOr<std::string> ExportTokenizerJson(std::string_view bytes,
                                                const std::vector<uint32_t>& begin_ids) {
  spm::Model model;
  if (!model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("tokenizer.model is not a SentencePiece model");
  }
  RIVULET_RETURN_IF_ERROR(CheckServed(model));
  for (const uint32_t id : begin_ids) {
    if (id >= static_cast<uint32_t>(model.pieces_size())) {
      return absl::InvalidArgumentError(absl::StrCat("tokenizer.model has no token ", id));
    }
  }
  const bool bpe = model.trainer_spec().model_type() == spm::TrainerSpec::BPE;
  const Json json = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", AddedTokens(model)},
                     {"normalizer", Normalizer(model.normalizer_spec())},
                     {"pre_tokenizer", nullptr},
                     {"post_processor", PostProcessor(model, begin_ids)},
                     {"decoder", Decoder(model.normalizer_spec())},
                     {"model", bpe ? BpeModel(model) : UnigramModel(model)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rivulet::vllm_engine
