// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The parts of a regular expression that stand for one character: literals, escapes, classes.
// Internal to pattern_syntax.h.
// Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_CHARACTER_CLASS_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_CHARACTER_CLASS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model_loader/hf_tokenizer/code_point_set.h"

namespace rivulet {

// A place in a pattern, which is valid UTF-8.
class PatternCursor {
 public:
  explicit PatternCursor(std::string_view pattern) : pattern_(pattern) {}
  bool done() const { return place_ >= pattern_.size(); }
  size_t place() const { return place_; }
  std::string_view rest() const { return pattern_.substr(place_); }
  bool At(std::string_view text) const { return rest().starts_with(text); }
  // Moves behind `text` if it stands here.
  bool Skip(std::string_view text);
  void Move(size_t bytes) { place_ += bytes; }
  uint32_t NextCharacter();  // REQUIRES: !done()

  // Both name the place.
  absl::Status Unsupported(std::string_view what) const;
  absl::Status Wrong(std::string_view what) const;

 private:
  std::string_view pattern_;
  size_t place_ = 0;
};

// What one character of the pattern stands for. `code`: set when it is a single literal character.
struct CharacterAtom {
  CodePointSet set;
  std::optional<uint32_t> code;
};

// After a backslash. Those that are no characters (\b, \A ...) are for the caller.
absl::StatusOr<CharacterAtom> ReadEscape(PatternCursor& cursor);

// After "[".
absl::StatusOr<CodePointSet> ReadClass(PatternCursor& cursor, bool ignore_case);

// The set with the other case of its letters. Only ASCII's letters may have one: of others
// UNIMPLEMENTED.
absl::StatusOr<CodePointSet> WithBothCases(const CodePointSet& set, const PatternCursor& cursor);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_CHARACTER_CLASS_H_
