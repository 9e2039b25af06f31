// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/added_tokens.h"
#include "model_loader/hf_tokenizer/decoder.h"
#include "model_loader/hf_tokenizer/normalizer.h"
#include "model_loader/hf_tokenizer/post_processor.h"
#include "model_loader/hf_tokenizer/pre_tokenizer.h"
#include "model_loader/hf_tokenizer/subword_model.h"
#include "model_loader/text_check.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

const nlohmann::json& Part(const nlohmann::json& json, const char* key) {
  static const nlohmann::json* const none = new nlohmann::json();
  const auto part = json.find(key);
  return part == json.end() ? *none : *part;
}

absl::Status In(const char* part, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(part, ": ", status.message()));
}

// How much longer than the text a normalizer may make it. No normal form makes a byte eleven.
constexpr size_t kGrowth = 32;
constexpr size_t kLeastNormalBytes = size_t{1} << 20;
constexpr size_t kBytesOfToken = 16;  // on average, for the time that decoding may take

class HfTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Make(const nlohmann::json& json,
                                                         const nlohmann::json& config,
                                                         const nlohmann::json& special_tokens);

  absl::StatusOr<std::vector<uint32_t>> EncodeMarked(std::string_view text,
                                                     const PlainRanges& plain) const override;
  std::string_view TokenBytes(uint32_t id) const override { return tokens_[id].bytes; }
  std::string_view FirstTokenBytes(uint32_t id) const override {
    const Token& token = tokens_[id];
    return token.first_is_same ? token.bytes : token.first_bytes;
  }
  bool IsByteToken(uint32_t id) const override { return tokens_[id].is_byte; }
  bool DropsLastSpace() const override { return drops_last_space_; }
  std::string_view Piece(uint32_t id) const override {
    const AddedToken* const added = added_.Find(id);
    return added != nullptr ? added->content : model_->vocabulary().Token(id);
  }
  size_t vocab_size() const override { return tokens_.size(); }
  bool AddsDummyPrefix() const override { return first_differs_; }
  int64_t bos_id() const override { return bos_id_; }
  int64_t eos_id() const override { return eos_id_; }
  const std::optional<std::vector<uint32_t>>& begin_ids() const override { return begin_ids_; }

 private:
  struct Token {
    std::string bytes, first_bytes;
    bool first_is_same = true;
    bool is_byte = false;
  };
  // What one call of Encode works with.
  struct Work {
    PatternScratch scratch;
    std::unique_ptr<SubwordModel::Encoder> encoder;
    std::vector<uint32_t> ids;
  };
  struct MarkedNormalText {
    NormalText normal;
    PlainRanges plain;  // of it
  };

  absl::Status EncodeWritten(const MarkedText& text, bool from_start, Work& work) const;
  absl::Status EncodeNormal(std::string_view text, bool from_start, Work& work) const;
  absl::Status Normalize(NormalText& text, PatternScratch& scratch) const;
  absl::StatusOr<MarkedNormalText> NormalizeMarked(const MarkedText& text, bool from_start,
                                                   PatternScratch& scratch) const;
  absl::StatusOr<MarkedNormalText> NormalizeRuns(const MarkedText& text, bool from_start,
                                                 PatternScratch& scratch) const;

  absl::StatusOr<std::string> NormalOf(std::string_view text) const;

  absl::Status ReadParts(const nlohmann::json& json);
  absl::Status ReadAddedTokens(const nlohmann::json& json, const nlohmann::json& config);
  absl::Status ReadConfigTokens(const nlohmann::json& config);
  absl::Status DecodeTokens(const nlohmann::json& json);
  absl::Status DecodeToken(const Decoder& decoder, uint32_t id, PatternScratch& scratch);
  absl::Status ReadSurroundings(const nlohmann::json& json, const nlohmann::json& config);
  int64_t FindSpecial(const char* key, const nlohmann::json& config,
                      const nlohmann::json& special_tokens) const;
  std::optional<uint32_t> FindId(std::string_view content) const;

  std::unique_ptr<const Normalizer> normalizer_;       // may be null
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;  // may be null
  std::unique_ptr<const SubwordModel> model_;
  AddedTokens added_;
  std::vector<Token> tokens_;
  bool drops_last_space_ = false;
  bool first_differs_ = false;
  int64_t bos_id_ = -1, eos_id_ = -1;
  std::optional<std::vector<uint32_t>> begin_ids_;
};

absl::StatusOr<std::vector<uint32_t>> HfTokenizer::EncodeMarked(std::string_view text,
                                                                const PlainRanges& plain) const {
  RIVULET_RETURN_IF_ERROR(CheckUtf8(text));
  Work work = {PatternScratch(text.size()), model_->NewEncoder(), {}};
  for (const TextPart& part : added_.Split(text, AddedTokens::Text::kAsWritten, plain)) {
    if (part.token.has_value()) {
      work.ids.push_back(*part.token);
      continue;
    }
    const auto [begin, end] = part.range;
    const MarkedText written = {std::string(text.substr(begin, end - begin)),
                                Slice(plain, begin, end)};
    RIVULET_RETURN_IF_ERROR(EncodeWritten(written, begin == 0, work));
  }
  return std::move(work.ids);
}

absl::Status HfTokenizer::Normalize(NormalText& text, PatternScratch& scratch) const {
  text.most_bytes = kLeastNormalBytes + kGrowth * text.text.size();
  return normalizer_ == nullptr ? absl::OkStatus() : normalizer_->Apply(scratch, &text);
}

absl::StatusOr<std::string> HfTokenizer::NormalOf(std::string_view text) const {
  PatternScratch scratch(text.size());
  NormalText normal = {std::string(text)};
  RIVULET_RETURN_IF_ERROR(Normalize(normal, scratch));
  return std::move(normal.text);
}

absl::StatusOr<HfTokenizer::MarkedNormalText> HfTokenizer::NormalizeMarked(
    const MarkedText& text, bool from_start, PatternScratch& scratch) const {
  const bool all_plain = Covers(text.plain, 0, text.bytes.size());
  const bool mixed = added_.has_normalized_special() && !text.plain.empty() && !all_plain;
  if (mixed && normalizer_ != nullptr) return NormalizeRuns(text, from_start, scratch);
  MarkedNormalText whole;
  whole.normal.text = text.bytes;
  whole.normal.from_start = from_start;
  whole.plain = text.plain;
  RIVULET_RETURN_IF_ERROR(Normalize(whole.normal, scratch));
  if (all_plain) whole.plain = {{0, whole.normal.text.size()}};
  return whole;
}

// Where special tokens are looked for in the normalized text and some of it is plain, what is plain
// and what is not are normalized each for itself. That tells them apart afterwards, and an accent
// at the beginning of a user's text does not change the template's last character.
absl::StatusOr<HfTokenizer::MarkedNormalText> HfTokenizer::NormalizeRuns(
    const MarkedText& text, bool from_start, PatternScratch& scratch) const {
  MarkedText joined;
  bool starts = from_start;
  for (const auto& [range, plain] : Runs(text)) {
    const auto [begin, end] = range;
    NormalText part = {text.bytes.substr(begin, end - begin), from_start && begin == 0};
    part.has_before = begin > 0;
    part.has_behind = end < text.bytes.size();
    RIVULET_RETURN_IF_ERROR(Normalize(part, scratch));
    if (begin == 0) starts = part.from_start;
    joined.Append(MarkedText::Of(std::move(part.text), plain));
  }
  return MarkedNormalText{{std::move(joined.bytes), starts}, std::move(joined.plain)};
}

absl::Status HfTokenizer::EncodeWritten(const MarkedText& text, bool from_start, Work& work) const {
  RIVULET_ASSIGN_OR_RETURN(const MarkedNormalText marked,
                           NormalizeMarked(text, from_start, work.scratch));
  const NormalText& normal = marked.normal;
  for (const TextPart& part :
       added_.Split(normal.text, AddedTokens::Text::kNormalized, marked.plain)) {
    if (part.token.has_value()) {
      work.ids.push_back(*part.token);
      continue;
    }
    const auto [begin, end] = part.range;
    RIVULET_RETURN_IF_ERROR(EncodeNormal(std::string_view(normal.text).substr(begin, end - begin),
                                         normal.from_start && begin == 0, work));
  }
  return absl::OkStatus();
}

absl::Status HfTokenizer::EncodeNormal(std::string_view text, bool from_start, Work& work) const {
  const auto encode = [&work](const PieceList& list) {
    for (const TextRange& piece : list.pieces) {
      RIVULET_RETURN_IF_ERROR(work.encoder->Append(list.Text(piece), &work.ids));
    }
    return absl::OkStatus();
  };
  PieceList whole = {std::string(text), {{0, text.size()}}, from_start};
  if (pre_tokenizer_ == nullptr) return encode(whole);
  return pre_tokenizer_->Stream(work.scratch, std::move(whole), encode);
}

absl::Status HfTokenizer::ReadParts(const nlohmann::json& json) {
  auto normalizer = ParseNormalizer(Part(json, "normalizer"));
  RIVULET_RETURN_IF_ERROR(In("normalizer", normalizer.status()));
  normalizer_ = *std::move(normalizer);
  auto pre_tokenizer = ParsePreTokenizer(Part(json, "pre_tokenizer"));
  RIVULET_RETURN_IF_ERROR(In("pre_tokenizer", pre_tokenizer.status()));
  pre_tokenizer_ = *std::move(pre_tokenizer);
  auto model = ParseSubwordModel(Part(json, "model"));
  RIVULET_RETURN_IF_ERROR(In("model", model.status()));
  model_ = *std::move(model);
  return absl::OkStatus();
}

absl::Status HfTokenizer::ReadAddedTokens(const nlohmann::json& json,
                                          const nlohmann::json& config) {
  const nlohmann::json& list = Part(json, "added_tokens");
  if (!list.is_null() && !list.is_array()) {
    return absl::InvalidArgumentError("added_tokens is no list");
  }
  for (const nlohmann::json& token : list) {
    ConfigReader reader(token);
    const size_t id = reader.Size("id", std::nullopt, 0, UINT32_MAX);
    RIVULET_RETURN_IF_ERROR(In("added_tokens", added_.Add(reader, id, model_->vocabulary())));
  }
  RIVULET_RETURN_IF_ERROR(In("tokenizer_config.json", ReadConfigTokens(config)));
  const auto normalize = [this](std::string_view text) { return NormalOf(text); };
  return In("added_tokens", added_.Finish(normalize));
}

// added_tokens_decoder, {"32000": {"content": ...}}: those that tokenizer.json does not have.
absl::Status HfTokenizer::ReadConfigTokens(const nlohmann::json& config) {
  const nlohmann::json& decoder = Part(config, "added_tokens_decoder");
  if (!decoder.is_object()) return absl::OkStatus();
  std::vector<std::pair<uint64_t, const nlohmann::json*>> tokens;
  for (const auto& [key, token] : decoder.items()) {
    uint64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens_decoder: \"", key, "\" is no id"));
    }
    tokens.emplace_back(id, &token);
  }
  std::sort(tokens.begin(), tokens.end());
  for (const auto& [id, token] : tokens) {
    ConfigReader reader(*token);
    RIVULET_RETURN_IF_ERROR(added_.Add(reader, id, model_->vocabulary()));
  }
  return absl::OkStatus();
}

// A token that is looked for in normalized text is shown normalized, and as such may no longer be
// special: this is what the `tokenizers` package does.
absl::Status HfTokenizer::DecodeToken(const Decoder& decoder, uint32_t id,
                                      PatternScratch& scratch) {
  const AddedToken* const added = added_.Find(id);
  if (added == nullptr && !model_->vocabulary().Has(id)) return absl::OkStatus();
  std::string shown(Piece(id));
  if (added != nullptr && added->normalized) {
    RIVULET_ASSIGN_OR_RETURN(shown, NormalOf(shown));
  }
  const AddedToken* const skipped = added == nullptr ? nullptr : added_.Find(shown);
  if (skipped != nullptr && skipped->special) return absl::OkStatus();
  Token& token = tokens_[id];
  RIVULET_ASSIGN_OR_RETURN(DecodedToken decoded, decoder.Decode(shown, false, scratch));
  RIVULET_ASSIGN_OR_RETURN(DecodedToken first, decoder.Decode(shown, true, scratch));
  token.is_byte = decoded.is_byte;
  token.first_is_same = first.bytes == decoded.bytes;
  token.bytes = std::move(decoded.bytes);
  if (!token.first_is_same) token.first_bytes = std::move(first.bytes);
  first_differs_ = first_differs_ || !token.first_is_same;
  return absl::OkStatus();
}

absl::Status HfTokenizer::DecodeTokens(const nlohmann::json& json) {
  RIVULET_ASSIGN_OR_RETURN(const Decoder decoder, Decoder::Parse(Part(json, "decoder")));
  drops_last_space_ = decoder.drops_last_space();
  size_t end = model_->vocabulary().end_id();
  for (const AddedToken& token : added_.tokens()) end = std::max<size_t>(end, token.id + 1);
  tokens_.resize(end);
  PatternScratch scratch(kBytesOfToken * end);
  for (uint32_t id = 0; id < end; ++id) {
    RIVULET_RETURN_IF_ERROR(DecodeToken(decoder, id, scratch));
  }
  return absl::OkStatus();
}

std::optional<uint32_t> HfTokenizer::FindId(std::string_view content) const {
  const AddedToken* const added = added_.Find(content);
  return added != nullptr ? std::optional(added->id) : model_->vocabulary().Find(content);
}

// "bos_token": "<s>", or an object with its content.
int64_t HfTokenizer::FindSpecial(const char* key, const nlohmann::json& config,
                                 const nlohmann::json& special_tokens) const {
  for (const nlohmann::json* file : {&config, &special_tokens}) {
    const nlohmann::json& value = Part(*file, key);
    const nlohmann::json& content = value.is_object() ? Part(value, "content") : value;
    if (!content.is_string()) continue;
    const auto id = FindId(content.get_ref<const std::string&>());
    if (id.has_value()) return *id;
  }
  return -1;
}

// transformers rebuilds the post-processor if add_bos_token is written down.
absl::Status HfTokenizer::ReadSurroundings(const nlohmann::json& json,
                                           const nlohmann::json& config) {
  auto surrounding = ParsePostProcessor(Part(json, "post_processor"), tokens_.size());
  RIVULET_RETURN_IF_ERROR(In("post_processor", surrounding.status()));
  begin_ids_ = std::move(surrounding->before);
  const nlohmann::json& add_bos = Part(config, "add_bos_token");
  if (!add_bos.is_boolean()) return absl::OkStatus();
  begin_ids_->clear();
  if (add_bos.get<bool>() && bos_id_ >= 0) begin_ids_->push_back(static_cast<uint32_t>(bos_id_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> HfTokenizer::Make(const nlohmann::json& json,
                                                             const nlohmann::json& config,
                                                             const nlohmann::json& special_tokens) {
  auto tokenizer = std::make_unique<HfTokenizer>();
  RIVULET_RETURN_IF_ERROR(tokenizer->ReadParts(json));
  RIVULET_RETURN_IF_ERROR(tokenizer->ReadAddedTokens(json, config));
  RIVULET_RETURN_IF_ERROR(In("decoder", tokenizer->DecodeTokens(json)));
  tokenizer->bos_id_ = tokenizer->FindSpecial("bos_token", config, special_tokens);
  tokenizer->eos_id_ = tokenizer->FindSpecial("eos_token", config, special_tokens);
  RIVULET_RETURN_IF_ERROR(tokenizer->ReadSurroundings(json, config));
  return tokenizer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeHfTokenizer(const nlohmann::json& tokenizer,
                                                           const nlohmann::json& config,
                                                           const nlohmann::json& special_tokens) {
  return HfTokenizer::Make(tokenizer, config, special_tokens);
}

}  // namespace rivulet
