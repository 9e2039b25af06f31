// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A place in the text of a grammar or of an expression, for parsers that descend into it.
#ifndef RIVULET_SERVER_GRAMMAR_PATTERN_READER_H_
#define RIVULET_SERVER_GRAMMAR_PATTERN_READER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rivulet {

struct RepeatBounds {
  uint32_t least = 1;
  uint32_t most = 1;
};

class PatternReader {
 public:
  static constexpr uint32_t kEnd = UINT32_MAX;
  static constexpr uint32_t kMostRepeats = 65535;

  // `text` is valid UTF-8 and outlives it.
  explicit PatternReader(std::string_view text) : text_(text) {}

  bool at_end() const { return place_ == text_.size(); }
  // The next character, or kEnd.
  uint32_t Peek() const;
  uint32_t Take();
  // Takes `expected` if it comes next.
  bool TakeIf(std::string_view expected);
  std::string_view rest() const { return text_.substr(place_); }

  // What stands behind a part: ?, *, +, {n}, {n,} or {n,m}; {1, 1} if there is none of them.
  absl::StatusOr<RepeatBounds> TakeRepeat();
  // So many hexadecimal digits, as a character that is no surrogate.
  absl::StatusOr<uint32_t> TakeHexadecimal(size_t digits);

  // INVALID_ARGUMENT or UNIMPLEMENTED: with the place, in bytes.
  absl::Status Wrong(std::string_view what) const;
  absl::Status NotServed(std::string_view what) const;

 private:
  absl::StatusOr<uint32_t> TakeNumber();

  std::string_view text_;
  size_t place_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_GRAMMAR_PATTERN_READER_H_
