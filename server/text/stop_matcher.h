// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds the first stop string in a text that arrives in pieces. Bytes that may belong to a match
// are held back. The whole output, and which string matched, do not depend on where the pieces are
// cut.
//
// The first match is the one that ends first. Of several that end at the same byte it is the one
// that starts first, so that no byte of any of them is shown; of equal strings, the one listed
// first.
//
// It compares bytes. Text and strings that are UTF-8 are cut between characters only.
// Cost: O(strings) a byte. Threading: one thread at a time.
#ifndef RIVULET_SERVER_TEXT_STOP_MATCHER_H_
#define RIVULET_SERVER_TEXT_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace rivulet {

class StopMatcher {
 public:
  static constexpr size_t kMaxStrings = 16;
  static constexpr size_t kMaxBytes = 256;  // of one string

  // INVALID_ARGUMENT naming the string and the limit: too many, too long, empty, not UTF-8.
  static absl::Status Validate(const std::vector<std::string>& strings);

  // REQUIRES: Validate(strings) is OK. No strings: everything passes through. With `include_stop`
  // the matched string is part of the text.
  StopMatcher(std::vector<std::string> strings, bool include_stop);

  // The text that may be shown now. `may_stop` false (min_tokens not reached): a string that ends
  // in this piece is text like any other. After a match: nothing, ever.
  std::string Append(std::string_view piece, bool may_stop = true);
  // The end of the text: returns what was held back, nothing after a match.
  std::string Finish();

  bool matched() const { return matched_.has_value(); }
  // Index in the constructor's list. REQUIRES: matched().
  size_t matched_index() const { return *matched_; }
  const std::string& matched_string() const { return patterns_[*matched_].text; }

 private:
  // Knuth-Morris-Pratt: `length` bytes of the pattern are a suffix of the text so far, and no
  // longer prefix is. borders[n]: the longest proper prefix of the first n bytes that is their
  // suffix.
  struct Pattern {
    std::string text;
    std::vector<uint16_t> borders;
    size_t length = 0;
  };

  static Pattern MakePattern(std::string text);
  static void Advance(Pattern& pattern, char byte);
  std::optional<size_t> LongestComplete() const;
  size_t LongestPrefix() const;

  std::vector<Pattern> patterns_;
  bool include_stop_;
  std::string held_;  // a suffix of the text so far, not yet shown
  std::optional<size_t> matched_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_TEXT_STOP_MATCHER_H_
