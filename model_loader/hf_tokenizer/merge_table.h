// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The merges of a BPE model: which token two neighbours become, and how early.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_MERGE_TABLE_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace rivulet {

class MergeTable {
 public:
  // A rank beyond all others, of pairs that are no merge.
  static constexpr uint32_t kNoRank = UINT32_MAX;

  void Reserve(size_t merges) {
    ranks_.reserve(merges);
    joined_.reserve(merges);
  }
  // The merge of the next rank, from 0. Of two merges of one pair the later counts.
  void Add(uint32_t left, uint32_t right, uint32_t joined) {
    ranks_[Key(left, right)] = static_cast<uint32_t>(joined_.size());
    joined_.push_back(joined);
  }

  size_t size() const { return joined_.size(); }
  uint32_t Rank(uint32_t left, uint32_t right) const {
    const auto entry = ranks_.find(Key(left, right));
    return entry == ranks_.end() ? kNoRank : entry->second;
  }
  // What the merge of this rank makes.
  uint32_t Joined(uint32_t rank) const { return joined_[rank]; }

  // Calls use(left, right, joined) for each pair.
  template <typename Use>
  void ForEach(Use use) const {
    for (const auto& [key, rank] : ranks_) {
      use(static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key), joined_[rank]);
    }
  }

 private:
  static uint64_t Key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  absl::flat_hash_map<uint64_t, uint32_t> ranks_;
  std::vector<uint32_t> joined_;  // by rank
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_MERGE_TABLE_H_
