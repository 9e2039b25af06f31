// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tokens of a model and their ids. Ids may have gaps; no two tokens share one.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_VOCABULARY_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"

namespace rivulet {

class Vocabulary {
 public:
  // Two tokens for each id is more than enough for any gap; a larger id is a mistake, and would
  // take memory.
  static constexpr size_t kMostTokens = size_t{1} << 22;

  // INVALID_ARGUMENT if the id belongs to another token or is beyond kMostTokens. A token that is
  // there already keeps its first id.
  absl::Status Add(std::string_view token, uint64_t id);

  std::optional<uint32_t> Find(std::string_view token) const {
    const auto entry = ids_.find(token);
    if (entry == ids_.end()) return std::nullopt;
    return entry->second;
  }
  // Empty for an id of no token.
  std::string_view Token(uint32_t id) const { return id < tokens_.size() ? tokens_[id] : ""; }
  bool Has(uint32_t id) const { return id < has_.size() && has_[id]; }

  size_t count() const { return ids_.size(); }
  size_t end_id() const { return tokens_.size(); }  // one more than the largest

 private:
  struct Hash {
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::deque<std::string> storage_;
  absl::flat_hash_map<std::string_view, uint32_t, Hash> ids_;
  std::vector<std::string_view> tokens_;
  std::vector<bool> has_;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_VOCABULARY_H_
