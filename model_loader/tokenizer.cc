// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/tokenizer.h"

#include <filesystem>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/hf_tokenizer/hf_tokenizer.h"
#include "model_loader/hf_tokenizer/literal_matcher.h"
#include "model_loader/json.h"
#include "model_loader/sentencepiece/sentencepiece.h"
#include "model_loader/text_check.h"
#include "model_loader/world_tokenizer.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr uintmax_t kLargestTokenizer = 256 << 20;
constexpr absl::string_view kSpacePiece = "\xe2\x96\x81";    // ▁
constexpr std::string_view kUnknownText = " \xe2\x81\x87 ";  // " ⁇ ", as SentencePiece decodes it

std::string BytesOf(const SentencePiece& model, int id) {
  if (model.IsControl(id) || model.IsUnused(id)) return "";
  if (model.IsUnknown(id)) return std::string(kUnknownText);
  const absl::string_view piece = ToAbsl(model.IdToPiece(id));
  if (!model.IsByte(id)) return absl::StrReplaceAll(piece, {{kSpacePiece, " "}});
  RIVULET_CHECK(piece.size() == 6, "a byte piece is not <0xNN>");
  return absl::HexStringToBytes(piece.substr(3, 2));
}

// Before SentencePiece opens it: a pipe would wait for its writer, /dev/zero would never end. A
// link that leads nowhere is a mistake and not a model without a tokenizer.
absl::Status CheckFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() ==
      std::filesystem::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file, or a link to none"));
  }
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes <= kLargestTokenizer) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has ", bytes, " bytes, the limit is ", kLargestTokenizer));
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(std::unique_ptr<SentencePiece> model) : model_(std::move(model)) {
    const int size = model_->vocabulary_size();
    bytes_.reserve(static_cast<size_t>(size));
    for (int id = 0; id < size; ++id) AddPiece(id);
    adds_dummy_prefix_ = FindDummyPrefix();
  }

  // What stands between two control pieces is a text of its own, with its own dummy prefix.
  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override {
    RIVULET_RETURN_IF_ERROR(CheckUtf8(text));
    const auto counts = [&](const LiteralMatcher::Match& match) {
      return !Overlaps(plain, match.begin, match.end);
    };
    std::vector<uint32_t> ids;
    size_t begin = 0;
    while (const auto match = control_pieces_.Find(text, begin, counts)) {
      RIVULET_RETURN_IF_ERROR(Append(text.substr(begin, match->begin - begin), ids));
      ids.push_back(match->value);
      begin = match->end;
    }
    RIVULET_RETURN_IF_ERROR(Append(text.substr(begin), ids));
    return ids;
  }

  std::string_view TokenBytes(uint32_t id) const override { return bytes_[id]; }
  std::string_view Piece(uint32_t id) const override {
    return model_->IdToPiece(static_cast<int>(id));
  }
  size_t vocab_size() const override { return bytes_.size(); }
  bool AddsDummyPrefix() const override { return adds_dummy_prefix_; }
  int64_t bos_id() const override { return model_->begin_id(); }
  int64_t eos_id() const override { return model_->end_id(); }

 private:
  void AddPiece(int id) {
    bytes_.push_back(BytesOf(*model_, id));
    const std::string_view piece = model_->IdToPiece(id);
    if (model_->IsControl(id) && !piece.empty()) {
      control_pieces_.Add(piece, static_cast<uint32_t>(id));
    }
  }

  absl::Status Append(std::string_view text, std::vector<uint32_t>& ids) const {
    std::vector<int> found;
    std::string error;
    if (!model_->Encode(text, &found, &error)) {
      return absl::InternalError(absl::StrCat("SentencePiece could not encode the text: ", error));
    }
    ids.insert(ids.end(), found.begin(), found.end());
    return absl::OkStatus();
  }

  // The library does not tell, so we look at what it does to a letter.
  bool FindDummyPrefix() const {
    std::vector<int> ids;
    std::string error;
    return model_->Encode("a", &ids, &error) && !ids.empty() &&
           bytes_[static_cast<size_t>(ids[0])].starts_with(' ') && !model_->IsUnknown(ids[0]);
  }

  const std::unique_ptr<SentencePiece> model_;
  std::vector<std::string> bytes_;
  LiteralMatcher control_pieces_;
  bool adds_dummy_prefix_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePiece(const std::string& path) {
  RIVULET_RETURN_IF_ERROR(CheckFile(path));
  std::string error;
  std::unique_ptr<SentencePiece> model = SentencePiece::LoadFile(path, &error);
  if (model == nullptr) return absl::InvalidArgumentError(error);
  return std::make_unique<SentencePieceTokenizer>(std::move(model));
}

namespace {

// The largest in use have 35 MB. In memory it is ten times as much until it is read.
constexpr size_t kLargestTokenizerJson = size_t{64} << 20;
constexpr size_t kLargestTokenizerConfig = size_t{16} << 20;

absl::StatusOr<nlohmann::json> ReadObjectOrEmpty(const std::string& path) {
  auto json = ReadJsonObject(path, kLargestTokenizerConfig);
  if (absl::IsNotFound(json.status())) return nlohmann::json::object();
  return json;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(const std::string& directory) {
  const std::string path = directory + "/tokenizer.json";
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json tokenizer,
                           ReadJsonObject(path, kLargestTokenizerJson));
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json config,
                           ReadObjectOrEmpty(directory + "/tokenizer_config.json"));
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json special_tokens,
                           ReadObjectOrEmpty(directory + "/special_tokens_map.json"));
  auto made = MakeHfTokenizer(tokenizer, config, special_tokens);
  if (made.ok()) return made;
  return absl::Status(made.status().code(), absl::StrCat(path, ": ", made.status().message()));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  auto tokenizer = LoadTokenizerJson(directory);
  if (tokenizer.ok()) return tokenizer;
  auto sentence_piece = LoadSentencePiece(directory + "/tokenizer.model");
  const bool other =
      absl::IsNotFound(tokenizer.status()) || absl::IsUnimplemented(tokenizer.status());
  if (other && !absl::IsNotFound(sentence_piece.status())) return sentence_piece;
  if (!absl::IsNotFound(tokenizer.status())) return tokenizer;
  auto world = LoadWorldTokenizer(directory);
  return absl::IsNotFound(world.status()) ? std::move(tokenizer) : std::move(world);
}

}  // namespace rivulet
