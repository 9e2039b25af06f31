// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The merges of a BPE model: which token two neighbours become, and how early.
//
// Threading: const methods may run in any number of threads at once.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_MERGE_TABLE_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_MERGE_TABLE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace rivulet {

class MergeTable {
 public:
  // A rank beyond all others, of pairs that are no merge.
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    uint32_t joined = 0;  // what the two become, if they are a merge
  };

  MergeTable() { Reserve(0); }

  // Before the first Add: for so many merges.
  void Reserve(size_t merges) {
    // Sparse, so that most pairs are in their first slot or find it free.
    const size_t count = std::bit_ceil(3 * merges + 2);
    slots_.assign(count + kMostProbes, Slot());
    shift_ = 64 - std::countr_zero(count);
  }
  // The merge of the next rank, from 0. Of two merges of one pair the later counts.
  void Add(uint32_t left, uint32_t right, uint32_t joined) {
    Put({Key(left, right), {next_rank_++, joined}});
  }

  // Ranks are below this.
  uint32_t end_rank() const { return next_rank_; }
  Merge Find(uint32_t left, uint32_t right) const {
    const uint64_t key = Key(left, right);
    const Slot* const first = &slots_[FirstPlace(key)];
    for (const Slot* slot = first; slot != first + kMostProbes; ++slot) {
      if (slot->key == key || slot->key == kFree) return slot->merge;
    }
    const auto entry = crowded_.find(key);
    return entry == crowded_.end() ? Merge() : entry->second;
  }

  // Calls use(left, right, joined) for each pair.
  template <typename Use>
  void ForEach(Use use) const {
    const auto call = [&](uint64_t key, const Merge& merge) {
      use(static_cast<uint32_t>(key >> 32), static_cast<uint32_t>(key), merge.joined);
    };
    for (const Slot& slot : slots_) {
      if (slot.key != kFree) call(slot.key, slot.merge);
    }
    for (const auto& [key, merge] : crowded_) call(key, merge);
  }

 private:
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  // A pair is in one of so many slots or in crowded_: a file whose pairs all have one place costs
  // no more than that.
  static constexpr size_t kMostProbes = 8;

  static uint64_t Key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  size_t FirstPlace(uint64_t key) const {
    constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    return key * kGoldenRatio >> shift_;
  }

  void Put(const Slot& added) {
    const size_t first = FirstPlace(added.key);
    for (size_t i = first; i < first + kMostProbes; ++i) {
      if (slots_[i].key != added.key && slots_[i].key != kFree) continue;
      slots_[i] = added;
      return;
    }
    crowded_[added.key] = added.merge;
  }

  std::vector<Slot> slots_;
  int shift_ = 0;  // of a pair's hash, to its first place
  absl::flat_hash_map<uint64_t, Merge> crowded_;
  uint32_t next_rank_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_MERGE_TABLE_H_
