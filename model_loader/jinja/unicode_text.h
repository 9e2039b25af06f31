// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What Python's str does with characters, on valid UTF-8: its notions of white space, of lines and
// of printable characters, and its full case mappings ("ß" in upper case is "SS"). Positions and
// lengths count characters (code points), not bytes.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_JINJA_UNICODE_TEXT_H_
#define RIVULET_MODEL_LOADER_JINJA_UNICODE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rivulet::jinja {

// The characters of a text. Bytes that are not UTF-8 count as one character each.
std::u32string Decode(std::string_view text);
std::string Encode(std::u32string_view characters);
void AppendUtf8(char32_t code, std::string& text);

size_t CountCharacters(std::string_view text);
// The byte where character `index` begins; the size of the text for any index behind its end.
size_t ByteOffset(std::string_view text, size_t index);
// The bytes of the character that begins at `text`, which is not empty.
std::string_view FirstCharacter(std::string_view text);

bool IsSpace(char32_t code);
bool IsPrintable(char32_t code);
bool IsAlphabetic(char32_t code);
bool IsDecimal(char32_t code);  // of any script
bool IsDigit(char32_t code);    // IsDecimal, and superscripts and their kind
bool IsNumeric(char32_t code);
bool IsUpper(char32_t code);
bool IsLower(char32_t code);
bool IsTitle(char32_t code);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);     // str.title: every word
std::string Capitalize(std::string_view text);  // the first character, the rest in lower case
std::string SwapCase(std::string_view text);

std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
// The same for a set of characters instead of white space.
std::string_view StripLeft(std::string_view text, std::string_view characters);
std::string_view StripRight(std::string_view text, std::string_view characters);

// str.splitlines.
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

}  // namespace rivulet::jinja

#endif  // RIVULET_MODEL_LOADER_JINJA_UNICODE_TEXT_H_
