// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A text in which some bytes are marked as plain: no special token is recognised where it would
// take a marked byte. A chat template copies what a client sent into the text that it renders; the
// marks follow those bytes through the template, so that a user who writes "<|im_end|>" does not
// end a turn, while the template does.
//
// It deliberately knows nothing of tokens: Tokenizer::EncodeMarked reads the marks.
// Threading: a value type; const functions may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_MARKED_TEXT_H_
#define RIVULET_MODEL_LOADER_MARKED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rivulet {

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// Ascending, none empty, none touching the next.
using PlainRanges = std::vector<TextRange>;

struct MarkedText {
  std::string bytes;
  PlainRanges plain;  // of bytes

  // All of it plain, or nothing.
  static MarkedText Of(std::string bytes, bool plain);

  // What is appended keeps its marks; a string_view has none.
  void Append(std::string_view part);
  void Append(const MarkedText& part);
  void Reserve(size_t size) { bytes.reserve(size); }

  // `part` is a view into `bytes`.
  MarkedText Part(std::string_view part) const;
  // What the marks take besides the bytes.
  size_t mark_bytes() const { return plain.size() * sizeof(TextRange); }

  bool operator==(const MarkedText&) const = default;
};

// The text cut where the marks begin and end.
struct MarkedRun {
  TextRange range;
  bool plain = false;
};
std::vector<MarkedRun> Runs(const MarkedText& text);

// For tests: the ranges are as PlainRanges says, and begin and end between characters.
bool IsSound(const MarkedText& text);

// Whether a range has a byte of [begin, end). O(log ranges).
bool Overlaps(const PlainRanges& ranges, size_t begin, size_t end);
// Whether one of them has all of [begin, end). O(log ranges).
bool Covers(const PlainRanges& ranges, size_t begin, size_t end);
// What lies in [begin, end), counted from `begin`.
PlainRanges Slice(const PlainRanges& ranges, size_t begin, size_t end);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MARKED_TEXT_H_
