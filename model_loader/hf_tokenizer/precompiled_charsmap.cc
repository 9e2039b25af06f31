// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/precompiled_charsmap.h"

#include <utf8proc.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "kernels/base/strings.h"
#include "model_loader/hf_tokenizer/unicode_data.h"
#include "model_loader/hf_tokenizer/utf8_text.h"

namespace rivulet {
namespace {

constexpr size_t kLongestGrapheme = 5;  // of those that are looked up as a whole

size_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
uint32_t LabelOf(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }

bool IsMark(uint32_t code) {
  static const auto* const marks = new CodePointSet(*UnicodeProperty("M"));
  return marks->Contains(code);
}

// The library may not know the newest marks.
bool IsNewMark(uint32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_CN &&
         IsMark(code);
}

class Graphemes {
 public:
  explicit Graphemes(std::string_view text) : text_(text) {}

  std::string_view Next() {
    const size_t begin = place_;
    uint32_t code = NextCodePoint(text_, &place_);
    utf8proc_int32_t state = 0;
    while (place_ < text_.size()) {
      size_t after = place_;
      const uint32_t next = NextCodePoint(text_, &after);
      if (Breaks(code, next, &state)) break;
      code = next;
      place_ = after;
    }
    return text_.substr(begin, place_ - begin);
  }
  bool done() const { return place_ >= text_.size(); }

 private:
  static bool Breaks(uint32_t a, uint32_t b, utf8proc_int32_t* state) {
    if (b >= 0x20 && b < 0x7F && a < 0x300) return true;
    const bool breaks = utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(a),
                                                         static_cast<utf8proc_int32_t>(b), state);
    if (!breaks || !IsNewMark(b)) return breaks;
    // A mark joins every character but a control character, and so does U+0301.
    *state = 0;
    return utf8proc_grapheme_break(static_cast<utf8proc_int32_t>(a), 0x301);
  }

  std::string_view text_;
  size_t place_ = 0;
};

}  // namespace

absl::StatusOr<PrecompiledCharsmap> PrecompiledCharsmap::Parse(std::string_view base64) {
  std::string bytes;
  uint32_t trie_bytes = 0;
  const absl::Status damaged = absl::InvalidArgumentError("precompiled_charsmap is damaged");
  if (!absl::Base64Unescape(ToAbsl(base64), &bytes) || bytes.size() < sizeof(trie_bytes)) {
    return damaged;
  }
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  if (trie_bytes > bytes.size() - sizeof(trie_bytes) || trie_bytes % sizeof(uint32_t) != 0) {
    return damaged;
  }
  PrecompiledCharsmap map;
  map.trie_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.trie_.data(), bytes.data() + sizeof(trie_bytes), trie_bytes);
  map.replacements_ = bytes.substr(sizeof(trie_bytes) + trie_bytes);
  return map;
}

std::optional<std::string_view> PrecompiledCharsmap::Replacement(std::string_view text) const {
  size_t node = OffsetOf(Unit(0));
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return std::nullopt;
    node ^= byte;
    const uint32_t unit = Unit(node);
    if (LabelOf(unit) != byte) return std::nullopt;
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    const size_t begin = ValueOf(Unit(node));
    if (begin >= replacements_.size()) return std::nullopt;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

void PrecompiledCharsmap::AppendGrapheme(std::string_view grapheme, std::string* result) const {
  if (grapheme.size() <= kLongestGrapheme) {
    if (const auto replacement = Replacement(grapheme)) {
      *result += *replacement;
      return;
    }
  }
  for (size_t i = 0; i < grapheme.size();) {
    const std::string_view character = grapheme.substr(i, Utf8Length(grapheme[i]));
    *result += Replacement(character).value_or(character);
    i += character.size();
  }
}

std::string PrecompiledCharsmap::Apply(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  for (Graphemes graphemes(text); !graphemes.done();) AppendGrapheme(graphemes.Next(), &result);
  return result;
}

}  // namespace rivulet
