// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "model_loader/hf_tokenizer/byte_characters.h"
#include "model_loader/hf_tokenizer/code_point_table.h"
#include "model_loader/hf_tokenizer/piece_splitter.h"
#include "model_loader/hf_tokenizer/text_pattern.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Result = absl::StatusOr<std::unique_ptr<const PreTokenizer>>;

// GPT-2's, which ByteLevel splits by.
constexpr char kByteLevelPattern[] =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class SplitByPattern : public PreTokenizer {
 public:
  SplitByPattern(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  absl::Status Apply(PatternScratch& scratch, PieceList* list) const override {
    std::vector<TextRange> pieces, matches;
    for (const TextRange& piece : list->pieces) {
      matches.clear();
      RIVULET_RETURN_IF_ERROR(pattern_.FindAll(list->Text(piece), scratch, &matches));
      SplitPiece(piece, matches, behavior_, invert_, &pieces);
    }
    list->pieces = std::move(pieces);
    return absl::OkStatus();
  }

 private:
  const TextPattern pattern_;
  const SplitBehavior behavior_;
  const bool invert_;
};

// Each character of the set is a match.
class SplitByCharacters : public PreTokenizer {
 public:
  SplitByCharacters(const CodePointSet& set, SplitBehavior behavior)
      : set_(set), behavior_(behavior) {}

  absl::Status Apply(PatternScratch&, PieceList* list) const override {
    std::vector<TextRange> pieces, matches;
    for (const TextRange& piece : list->pieces) {
      matches.clear();
      const std::string_view text = list->Text(piece);
      for (size_t i = 0; i < text.size();) {
        const size_t begin = i;
        if (set_.Contains(NextCodePoint(text, &i))) matches.push_back({begin, i});
      }
      SplitPiece(piece, matches, behavior_, false, &pieces);
    }
    list->pieces = std::move(pieces);
    return absl::OkStatus();
  }

 private:
  const CodePointTable set_;
  const SplitBehavior behavior_;
};

// \w+|[^\w\s]+ and nothing else.
class WhitespaceWords : public PreTokenizer {
 public:
  WhitespaceWords() : word_(RustWordCharacters()), space_(WhitespaceCharacters()) {}

  absl::Status Apply(PatternScratch&, PieceList* list) const override {
    std::vector<TextRange> pieces;
    for (const TextRange& piece : list->pieces) {
      int last = kSpace;
      for (size_t i = piece.begin; i < piece.end;) {
        const size_t begin = i;
        const int kind = KindOf(NextCodePoint(list->text, &i));
        if (kind != kSpace && kind == last) pieces.back().end = i;
        if (kind != kSpace && kind != last) pieces.push_back({begin, i});
        last = kind;
      }
    }
    list->pieces = std::move(pieces);
    return absl::OkStatus();
  }

 private:
  enum Kind { kSpace, kWord, kOther };
  Kind KindOf(uint32_t code) const {
    return word_.Contains(code) ? kWord : space_.Contains(code) ? kSpace : kOther;
  }

  const CodePointTable word_, space_;
};

// Pieces of so many characters.
class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(size_t length) : length_(length) {}
  absl::Status Apply(PatternScratch&, PieceList* list) const override {
    std::vector<TextRange> pieces;
    for (const TextRange& piece : list->pieces) {
      for (size_t i = piece.begin; i < piece.end;) {
        const size_t begin = i;
        for (size_t n = 0; n < length_ && i < piece.end; ++n) i += Utf8Length(list->text[i]);
        pieces.push_back({begin, i});
      }
    }
    list->pieces = std::move(pieces);
    return absl::OkStatus();
  }

 private:
  const size_t length_;
};

// Writes each piece anew.
template <typename Write>
void Rewrite(PieceList* list, Write write) {
  std::string text;
  text.reserve(list->text.size() + list->text.size() / 2);
  for (TextRange& piece : list->pieces) {
    const size_t begin = text.size();
    write(piece, &text);
    piece = {begin, text.size()};
  }
  list->text = std::move(text);
}

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::unique_ptr<const PreTokenizer> split)
      : add_prefix_space_(add_prefix_space), split_(std::move(split)) {}

  absl::Status Apply(PatternScratch& scratch, PieceList* list) const override {
    if (add_prefix_space_) AddSpaces(list);
    if (split_ != nullptr) RIVULET_RETURN_IF_ERROR(split_->Apply(scratch, list));
    Rewrite(list, [list](const TextRange& piece, std::string* text) {
      for (const char byte : list->Text(piece)) *text += ByteCharacter(static_cast<uint8_t>(byte));
    });
    return absl::OkStatus();
  }

 private:
  static void AddSpaces(PieceList* list) {
    Rewrite(list, [list](const TextRange& piece, std::string* text) {
      const std::string_view old = list->Text(piece);
      if (!old.starts_with(' ')) *text += ' ';
      *text += old;
    });
  }

  const bool add_prefix_space_;
  const std::unique_ptr<const PreTokenizer> split_;  // null: not here
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  absl::Status Apply(PatternScratch& scratch, PieceList* list) const override {
    Rewrite(list, [this, list](const TextRange& piece, std::string* text) {
      const std::string_view old = list->Text(piece);
      const bool first = list->from_start && piece.begin == 0;
      const bool begins_with_it = old.starts_with(' ') || old.starts_with(replacement_);
      if (Prepends(first) && !begins_with_it) *text += replacement_;
      AppendReplaced(old, text);
    });
    return split_ ? splitter_.Apply(scratch, list) : absl::OkStatus();
  }

 private:
  bool Prepends(bool first) const {
    return scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && first);
  }

  void AppendReplaced(std::string_view old, std::string* text) const {
    for (const char c : old) {
      if (c == ' ') {
        *text += replacement_;
      } else {
        *text += c;
      }
    }
  }

  const std::string replacement_;
  const PrependScheme scheme_;
  const bool split_;
  const SplitByPattern splitter_{TextPattern(replacement_), SplitBehavior::kMergedWithNext, false};
};

// Some of a list's pieces, and their text.
PieceList Slice(const PieceList& list, size_t first, size_t count) {
  const auto pieces = std::span(list.pieces).subspan(first);
  PieceList slice;
  slice.pieces.assign(pieces.begin(), pieces.begin() + std::min(count, pieces.size()));
  const size_t begin = slice.pieces.front().begin;
  slice.text = list.text.substr(begin, slice.pieces.back().end - begin);
  slice.from_start = list.from_start && begin == 0;
  for (TextRange& piece : slice.pieces) piece = {piece.begin - begin, piece.end - begin};
  return slice;
}

class Sequence : public PreTokenizer {
 public:
  void Add(std::unique_ptr<const PreTokenizer> part) { parts_.push_back(std::move(part)); }
  absl::Status Apply(PatternScratch& scratch, PieceList* list) const override {
    return ApplyFrom(0, scratch, list);
  }

  // No part looks beyond a piece. What the first one makes is handed on bit by bit, so that the
  // lists of the others stay in the processor's cache.
  absl::Status Stream(PatternScratch& scratch, PieceList list, Take take) const override {
    if (parts_.size() < 2) return PreTokenizer::Stream(scratch, std::move(list), take);
    RIVULET_RETURN_IF_ERROR(parts_[0]->Apply(scratch, &list));
    for (size_t first = 0; first < list.pieces.size(); first += kSlice) {
      PieceList slice = Slice(list, first, kSlice);
      RIVULET_RETURN_IF_ERROR(ApplyFrom(1, scratch, &slice));
      RIVULET_RETURN_IF_ERROR(take(slice));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kSlice = 1024;  // pieces

  absl::Status ApplyFrom(size_t first, PatternScratch& scratch, PieceList* list) const {
    for (size_t i = first; i < parts_.size(); ++i) {
      RIVULET_RETURN_IF_ERROR(parts_[i]->Apply(scratch, list));
    }
    return absl::OkStatus();
  }

  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

Result MakeSequence(ConfigReader& reader) {
  const nlohmann::json* const parts = reader.Find("pretokenizers");
  if (parts == nullptr || !parts->is_array()) {
    return absl::InvalidArgumentError("Sequence without a list \"pretokenizers\"");
  }
  constexpr size_t kMost = 64;
  if (parts->size() > kMost) return absl::InvalidArgumentError("a Sequence of more than 64 parts");
  auto sequence = std::make_unique<Sequence>();
  for (const nlohmann::json& part : *parts) {
    RIVULET_ASSIGN_OR_RETURN(auto pre_tokenizer, ParsePreTokenizer(part));
    if (pre_tokenizer != nullptr) sequence->Add(std::move(pre_tokenizer));
  }
  return sequence;
}

Result MakeByteLevel(ConfigReader& reader) {
  std::unique_ptr<const PreTokenizer> split;
  if (reader.Bool("use_regex", true)) {
    const nlohmann::json pattern = {{"Regex", kByteLevelPattern}};
    RIVULET_ASSIGN_OR_RETURN(TextPattern parsed, TextPattern::Parse(pattern));
    split = std::make_unique<SplitByPattern>(std::move(parsed), SplitBehavior::kIsolated, false);
  }
  return std::make_unique<ByteLevel>(reader.Bool("add_prefix_space", true), std::move(split));
}

Result MakeSplit(ConfigReader& reader) {
  const nlohmann::json* const pattern = reader.Find("pattern");
  if (pattern == nullptr) return absl::InvalidArgumentError("Split without \"pattern\"");
  RIVULET_ASSIGN_OR_RETURN(TextPattern parsed, TextPattern::Parse(*pattern));
  const SplitBehavior behavior = ReadSplitBehavior(reader, "Isolated");
  return std::make_unique<SplitByPattern>(std::move(parsed), behavior,
                                          reader.Bool("invert", false));
}

// One character of the key.
uint32_t ReadCharacter(ConfigReader& reader, std::string_view key, std::string_view otherwise) {
  const std::string text = reader.String(key, otherwise);
  size_t end = 0;
  const uint32_t code = text.empty() ? 0 : NextCodePoint(text, &end);
  reader.Require(!text.empty() && end == text.size(), key, "it must be one character");
  return code;
}

Result MakeMetaspace(ConfigReader& reader) {
  const uint32_t replacement = ReadCharacter(reader, "replacement", "\u2581");
  // Older files say add_prefix_space.
  const bool prefix = reader.Bool("add_prefix_space", true);
  const auto scheme = reader.Choice<PrependScheme>("prepend_scheme", prefix ? "always" : "never",
                                                   {{"always", PrependScheme::kAlways},
                                                    {"first", PrependScheme::kFirst},
                                                    {"never", PrependScheme::kNever}});
  return std::make_unique<Metaspace>(Utf8Of(replacement), scheme, reader.Bool("split", true));
}

Result MakeBert() {
  auto sequence = std::make_unique<Sequence>();
  sequence->Add(
      std::make_unique<SplitByCharacters>(WhitespaceCharacters(), SplitBehavior::kRemoved));
  sequence->Add(
      std::make_unique<SplitByCharacters>(PunctuationCharacters(), SplitBehavior::kIsolated));
  return sequence;
}

Result MakeCharacterSplit(const std::string& type, ConfigReader& reader) {
  if (type == "Digits") {
    const bool individual = reader.Bool("individual_digits", false);
    return std::make_unique<SplitByCharacters>(
        NumericCharacters(), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    return std::make_unique<SplitByCharacters>(PunctuationCharacters(),
                                               ReadSplitBehavior(reader, "Isolated"));
  }
  if (type == "WhitespaceSplit") {
    return std::make_unique<SplitByCharacters>(WhitespaceCharacters(), SplitBehavior::kRemoved);
  }
  if (type == "CharDelimiterSplit") {
    const uint32_t delimiter = ReadCharacter(reader, "delimiter", "");
    return std::make_unique<SplitByCharacters>(CodePointSet::Of(delimiter),
                                               SplitBehavior::kRemoved);
  }
  return absl::UnimplementedError(absl::StrCat("the pre-tokenizer ", type, " is not supported"));
}

Result Make(ConfigReader& reader) {
  const std::string type = reader.String("type");
  if (type == "Sequence") return MakeSequence(reader);
  if (type == "ByteLevel") return MakeByteLevel(reader);
  if (type == "Split") return MakeSplit(reader);
  if (type == "Metaspace") return MakeMetaspace(reader);
  if (type == "Whitespace") return std::make_unique<WhitespaceWords>();
  if (type == "BertPreTokenizer") return MakeBert();
  if (type == "FixedLength") return std::make_unique<FixedLength>(reader.Size("length", 5));
  return MakeCharacterSplit(type, reader);
}

}  // namespace

absl::Status PreTokenizer::Stream(PatternScratch& scratch, PieceList list, Take take) const {
  RIVULET_RETURN_IF_ERROR(Apply(scratch, &list));
  return take(list);
}

Result ParsePreTokenizer(const nlohmann::json& json) {
  if (json.is_null()) return std::unique_ptr<const PreTokenizer>();
  ConfigReader reader(json);
  Result result = Make(reader);
  if (result.ok() && !reader.ok()) return reader.status();
  return result;
}

}  // namespace rivulet
