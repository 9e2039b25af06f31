// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Finds given strings in a text: the leftmost match, and of those that begin there the longest. It
// is how special tokens are found in a rendered chat template.
//
// It compares bytes. Strings and texts that are UTF-8 match between whole characters only.
// Cost of Find: O(bytes skipped + length of the longest string), in the worst case their product.
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_LITERAL_MATCHER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_LITERAL_MATCHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace rivulet {

class LiteralMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    uint32_t value = 0;
  };

  LiteralMatcher();

  // `literal` is not empty. One that was added before keeps its value.
  void Add(std::string_view literal, uint32_t value);
  bool empty() const { return ends_.size() == 1; }

  // Whether a match counts.
  using Counts = absl::FunctionRef<bool(const Match&)>;

  // The first match at or after `from`, of those that count.
  std::optional<Match> Find(std::string_view text, size_t from, Counts counts) const;
  std::optional<Match> Find(std::string_view text, size_t from) const {
    return Find(text, from, [](const Match&) { return true; });
  }

 private:
  std::optional<Match> LongestAt(std::string_view text, size_t begin, Counts counts) const;

  std::array<bool, 256> begins_{};                    // some literal begins with this byte
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // node << 8 | byte → node; 0 is the root
  std::vector<std::optional<uint32_t>> ends_;         // of each node: the value of its literal
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_LITERAL_MATCHER_H_
