// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "client/cli/chat/word_wrap.h"

#include <algorithm>
#include <limits>

#include "client/cli/text.h"

namespace rivulet::cli {
namespace {

constexpr size_t kTabColumns = 8;

}  // namespace

std::string WordWrap::Add(std::string_view text, size_t width) {
  std::string out;
  width_ = width == 0 ? std::numeric_limits<size_t>::max() : width;
  while (!text.empty()) {
    const std::string_view character = FirstCharacter(text);
    AddCharacter(character, out);
    text.remove_prefix(character.size());
  }
  return out;
}

std::string WordWrap::Finish() {
  std::string out;
  PlaceWord(out);
  *this = {};
  return out;
}

void WordWrap::AddCharacter(std::string_view character, std::string& out) {
  if (character == "\n") {
    PlaceWord(out);
    return BreakLine(out);
  }
  if (character == " " || character == "\t") return AddSpace(character, out);
  const size_t columns = DisplayWidth(character);
  if (columns < 2) return AddToWord(character, columns, out);
  PlaceWord(out);
  AddToWord(character, columns, out);
  PlaceWord(out);
}

void WordWrap::AddSpace(std::string_view space, std::string& out) {
  PlaceWord(out);
  const size_t at = column_ + space_columns_;
  space_columns_ += space == "\t" ? kTabColumns - at % kTabColumns : 1;
  space_ += space;
}

void WordWrap::AddToWord(std::string_view character, size_t columns, std::string& out) {
  if (word_columns_ + columns > width_) PlaceWord(out);  // it fills a line
  word_ += character;
  word_columns_ += columns;
}

void WordWrap::PlaceWord(std::string& out) {
  if (word_.empty()) return;
  if (word_columns_ > width_ - std::min(width_, column_ + space_columns_)) {
    if (column_ > 0) BreakLine(out);
    space_.clear();
    space_columns_ = 0;
  }
  out += space_ + word_;
  column_ += space_columns_ + word_columns_;
  space_.clear();
  word_.clear();
  space_columns_ = word_columns_ = 0;
}

// Drops the white space before the break.
void WordWrap::BreakLine(std::string& out) {
  out += '\n';
  column_ = space_columns_ = 0;
  space_.clear();
}

std::string Wrapped(std::string_view text, size_t width) {
  if (width == 0) return std::string(text);
  WordWrap wrap;
  std::string wrapped = wrap.Add(text, width);
  return wrapped + wrap.Finish();
}

}  // namespace rivulet::cli
