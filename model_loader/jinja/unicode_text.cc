// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/jinja/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "kernels/base/utf8.h"
#include "model_loader/jinja/special_casing.h"

namespace rivulet::jinja {
namespace {

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool IsCased(char32_t code) { return IsUpper(code) || IsLower(code) || IsTitle(code); }

// Characters that a word's case looks past: marks, modifiers, apostrophes and their kind.
bool IsCaseIgnorable(char32_t code) {
  constexpr std::u32string_view kPunctuation =
      U"'.:^`\u00a8\u00ad\u00af\u00b4\u00b7\u00b8\u2018\u2019\u2024\u2027";
  if (kPunctuation.find(code) != std::u32string_view::npos) return true;
  switch (CategoryOf(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return false;
  }
}

// Whether the capital sigma at `place` ends a word.
bool IsFinalSigma(const std::u32string& text, size_t place) {
  size_t before = place;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  if (before == 0 || !IsCased(text[before - 1])) return false;
  size_t after = place + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  return after == text.size() || !IsCased(text[after]);
}

void AppendUpper(char32_t code, std::u32string& result) {
  if (const SpecialCasing* const special = FindSpecialCasing(code)) {
    result += special->upper;
  } else {
    result += static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
  }
}

void AppendTitle(char32_t code, std::u32string& result) {
  if (const SpecialCasing* const special = FindSpecialCasing(code)) {
    result += special->title;
  } else {
    result += static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
  }
}

void AppendLower(const std::u32string& text, size_t place, std::u32string& result) {
  constexpr char32_t kCapitalSigma = 0x3A3, kFinalSigma = 0x3C2, kCapitalDottedI = 0x130;
  const char32_t code = text[place];
  if (code == kCapitalDottedI) {
    result += U"i\u0307";
  } else if (code == kCapitalSigma && IsFinalSigma(text, place)) {
    result += kFinalSigma;
  } else {
    result += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
  }
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

std::string MapAscii(std::string_view text, char first, char last) {
  std::string result(text);
  for (char& c : result) {
    if (c >= first && c <= last) c = static_cast<char>(c ^ 0x20);
  }
  return result;
}

bool IsLineEnd(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

bool IsContinuation(char byte) { return (byte & 0xC0) == 0x80; }

// Where the last character of `text`, which is not empty, begins.
size_t LastCharacter(std::string_view text) {
  size_t place = text.size() - 1;
  while (place > 0 && IsContinuation(text[place])) --place;
  return place;
}

template <typename Drops>
std::string_view DropLeft(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const Utf8Character first = FirstUtf8Character(text);
    if (!drops(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  return text;
}

template <typename Drops>
std::string_view DropRight(std::string_view text, const Drops& drops) {
  while (!text.empty()) {
    const size_t place = LastCharacter(text);
    if (!drops(FirstUtf8Character(text.substr(place)).code)) break;
    text.remove_suffix(text.size() - place);
  }
  return text;
}

auto OneOf(const std::u32string& characters) {
  return [&characters](char32_t code) { return characters.find(code) != std::u32string::npos; };
}

}  // namespace

std::u32string Decode(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character first = FirstUtf8Character(text);
    characters += first.code;
    text.remove_prefix(first.bytes);
  }
  return characters;
}

void AppendUtf8(char32_t code, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
}

std::string Encode(std::u32string_view characters) {
  std::string text;
  text.reserve(characters.size());
  for (const char32_t code : characters) AppendUtf8(code, text);
  return text;
}

size_t CountCharacters(std::string_view text) {
  return text.size() - static_cast<size_t>(std::count_if(text.begin(), text.end(), IsContinuation));
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t place = 0;
  for (; place < text.size(); ++place) {
    if (IsContinuation(text[place])) continue;
    if (index-- == 0) break;
  }
  return place;
}

std::string_view FirstCharacter(std::string_view text) {
  return text.substr(0, FirstUtf8Character(text).bytes);
}

bool IsSpace(char32_t code) {
  if (code < 0x80) return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool IsPrintable(char32_t code) {
  if (code == ' ') return true;
  switch (CategoryOf(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool IsAlphabetic(char32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_ND; }

bool IsDigit(char32_t code) {
  if (IsDecimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070)
    return true;
  return (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089);
}

bool IsNumeric(char32_t code) {
  const utf8proc_category_t category = CategoryOf(code);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsUpper(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_LU; }
bool IsLower(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_LL; }
bool IsTitle(char32_t code) { return CategoryOf(code) == UTF8PROC_CATEGORY_LT; }

std::string ToUpper(std::string_view text) {
  if (IsAscii(text)) return MapAscii(text, 'a', 'z');
  std::u32string result;
  for (const char32_t code : Decode(text)) AppendUpper(code, result);
  return Encode(result);
}

std::string ToLower(std::string_view text) {
  if (IsAscii(text)) return MapAscii(text, 'A', 'Z');
  const std::u32string characters = Decode(text);
  std::u32string result;
  for (size_t i = 0; i < characters.size(); ++i) AppendLower(characters, i, result);
  return Encode(result);
}

std::string ToTitle(std::string_view text) {
  const std::u32string characters = Decode(text);
  std::u32string result;
  bool in_word = false;
  for (size_t i = 0; i < characters.size(); ++i) {
    in_word ? AppendLower(characters, i, result) : AppendTitle(characters[i], result);
    in_word = IsCased(characters[i]);
  }
  return Encode(result);
}

std::string Capitalize(std::string_view text) {
  const std::u32string characters = Decode(text);
  std::u32string result;
  for (size_t i = 0; i < characters.size(); ++i) {
    i > 0 ? AppendLower(characters, i, result) : AppendTitle(characters[i], result);
  }
  return Encode(result);
}

std::string SwapCase(std::string_view text) {
  const std::u32string characters = Decode(text);
  std::u32string result;
  for (size_t i = 0; i < characters.size(); ++i) {
    if (IsUpper(characters[i])) {
      AppendLower(characters, i, result);
    } else if (IsLower(characters[i])) {
      AppendUpper(characters[i], result);
    } else {
      result += characters[i];
    }
  }
  return Encode(result);
}

std::string_view StripLeft(std::string_view text) { return DropLeft(text, IsSpace); }
std::string_view StripRight(std::string_view text) { return DropRight(text, IsSpace); }

std::string_view StripLeft(std::string_view text, std::string_view characters) {
  const std::u32string dropped = Decode(characters);
  return DropLeft(text, OneOf(dropped));
}

std::string_view StripRight(std::string_view text, std::string_view characters) {
  const std::u32string dropped = Decode(characters);
  return DropRight(text, OneOf(dropped));
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t place = 0; place < text.size();) {
    const Utf8Character character = FirstUtf8Character(text.substr(place));
    const size_t line_end = place;
    place += character.bytes;
    if (!IsLineEnd(character.code)) continue;
    if (character.code == '\r' && place < text.size() && text[place] == '\n') ++place;
    lines.push_back(text.substr(begin, (keep_ends ? place : line_end) - begin));
    begin = place;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace rivulet::jinja
