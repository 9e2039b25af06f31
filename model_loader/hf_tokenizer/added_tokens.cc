// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/added_tokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "model_loader/hf_tokenizer/code_point_table.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr size_t kLongestToken = 4096;
constexpr size_t kMostTokens = size_t{1} << 20;

const CodePointTable& Words() {
  static const auto* const table = new CodePointTable(RustWordCharacters());
  return *table;
}

const CodePointTable& Spaces() {
  static const auto* const table = new CodePointTable(WhitespaceCharacters());
  return *table;
}

// Where the character before `end` begins. REQUIRES: end > 0.
size_t CharacterBefore(std::string_view text, size_t end) {
  do {
    --end;
  } while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

bool WordEndsAt(std::string_view text, size_t end) {
  if (end == 0) return false;
  size_t begin = CharacterBefore(text, end);
  return Words().Contains(NextCodePoint(text, &begin));
}

bool WordBeginsAt(std::string_view text, size_t begin) {
  return begin < text.size() && Words().Contains(NextCodePoint(text, &begin));
}

size_t SpacesEnd(std::string_view text, size_t begin) {
  for (size_t next = begin; begin < text.size(); begin = next) {
    if (!Spaces().Contains(NextCodePoint(text, &next))) break;
  }
  return begin;
}

// Not before `least`.
size_t SpacesBegin(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    const size_t begin = CharacterBefore(text, end);
    size_t place = begin;
    if (!Spaces().Contains(NextCodePoint(text, &place))) break;
    end = begin;
  }
  return end;
}

}  // namespace

uint64_t AddedTokens::NextId(std::string_view content, const Vocabulary& model) const {
  const std::optional<uint32_t> known = model.Find(content);
  if (known.has_value()) return *known;
  const size_t size = model.count();
  if (!largest_id_.has_value()) return size;
  return *largest_id_ >= size || size == 0 ? uint64_t{*largest_id_} + 1 : size;
}

absl::Status AddedTokens::Add(ConfigReader& reader, uint64_t id, const Vocabulary& model) {
  AddedToken token;
  token.content = reader.String("content");
  token.special = reader.Bool("special", false);
  token.single_word = reader.Bool("single_word", false);
  token.left = reader.Bool("lstrip", false);
  token.right = reader.Bool("rstrip", false);
  token.normalized = reader.Bool("normalized", !token.special);
  RIVULET_RETURN_IF_ERROR(reader.status());
  if (token.content.empty() || by_content_.contains(token.content)) return absl::OkStatus();
  const uint64_t expected = NextId(token.content, model);
  if (id != expected || id >= Vocabulary::kMostTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the added token \"", token.content, "\" has id ", id,
                     ", but the tokens before it make it ", expected,
                     ": ids are unique, and follow the vocabulary without a gap"));
  }
  if (token.content.size() > kLongestToken || tokens_.size() >= kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("an added token of more than ", kLongestToken,
                                                   " bytes, or more than ", kMostTokens,
                                                   " of them"));
  }
  token.id = static_cast<uint32_t>(id);
  largest_id_ = std::max(largest_id_.value_or(0), token.id);
  by_id_[token.id] = tokens_.size();
  by_content_[token.content] = tokens_.size();
  tokens_.push_back(std::move(token));
  return absl::OkStatus();
}

absl::Status AddedTokens::Finish(const Normalize& normalize) {
  for (const bool special : {true, false}) {  // of equal ones the special one counts
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const AddedToken& token = tokens_[i];
      if (token.special != special) continue;
      if (!token.normalized) {
        as_written_.Add(token.content, static_cast<uint32_t>(i));
        continue;
      }
      RIVULET_ASSIGN_OR_RETURN(const std::string content, normalize(token.content));
      if (!content.empty()) normalized_.Add(content, static_cast<uint32_t>(i));
      has_normalized_special_ = has_normalized_special_ || token.special;
    }
  }
  return absl::OkStatus();
}

// Matches go on behind the match, not behind the white space
// that it took, so parts may overlap: this is what the `tokenizers` package does.
void AddedTokens::AddPart(std::string_view text, const AddedToken& token, TextRange match,
                          std::vector<TextPart>* parts, size_t* end) const {
  if (token.single_word && (WordEndsAt(text, match.begin) || WordBeginsAt(text, match.end))) {
    return;
  }
  if (token.left) match.begin = SpacesBegin(text, match.begin, std::min(*end, match.begin));
  if (token.right) match.end = SpacesEnd(text, match.end);
  if (*end < match.begin) parts->push_back({{*end, match.begin}, std::nullopt});
  parts->push_back({match, token.id});
  *end = match.end;
}

// A special token that is plain as a whole hides what is in it, as in the `tokenizers` package with
// encode_special_tokens. One that is plain in part hides nothing: else a user's text could hide the
// template's tokens beside it.
std::vector<TextPart> AddedTokens::Split(std::string_view text, Text kind,
                                         const PlainRanges& plain) const {
  const LiteralMatcher& matcher = kind == Text::kNormalized ? normalized_ : as_written_;
  const auto counts = [&](const LiteralMatcher::Match& match) {
    return !tokens_[match.value].special || !Overlaps(plain, match.begin, match.end) ||
           Covers(plain, match.begin, match.end);
  };
  std::vector<TextPart> parts;
  size_t end = 0;
  for (size_t next = 0; !matcher.empty();) {
    const auto match = matcher.Find(text, next, counts);
    if (!match.has_value()) break;
    next = match->end;
    const AddedToken& token = tokens_[match->value];
    if (token.special && Overlaps(plain, match->begin, match->end)) continue;
    AddPart(text, token, {match->begin, match->end}, &parts, &end);
  }
  if (end < text.size()) parts.push_back({{end, text.size()}, std::nullopt});
  return parts;
}

const AddedToken* AddedTokens::Find(uint32_t id) const {
  const auto entry = by_id_.find(id);
  return entry == by_id_.end() ? nullptr : &tokens_[entry->second];
}

const AddedToken* AddedTokens::Find(std::string_view content) const {
  const auto entry = by_content_.find(ToAbsl(content));
  return entry == by_content_.end() ? nullptr : &tokens_[entry->second];
}

}  // namespace rivulet
