// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Applies merges to a list of symbols: of all neighbours that are a merge the one with the lowest
// rank (of equal ones the leftmost) is joined, until none is. Time: n log n.
//
// Threading: one thread's.
#ifndef RIVULET_MODEL_LOADER_HF_TOKENIZER_PAIR_MERGER_H_
#define RIVULET_MODEL_LOADER_HF_TOKENIZER_PAIR_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model_loader/hf_tokenizer/merge_table.h"

namespace rivulet {

class PairMerger {
 public:
  // `merges` must outlive this.
  explicit PairMerger(const MergeTable& merges) : merges_(merges) {}

  // Leaves in `symbols` what cannot be joined any further.
  void Merge(std::vector<uint32_t>* symbols);

 private:
  struct Link {
    uint32_t previous, next;
    MergeTable::Merge merge;  // with the next
  };
  static constexpr size_t kPlaceBits = 7;
  static constexpr size_t kShort = size_t{1} << kPlaceBits;
  static constexpr size_t kBlock = 8;
  // This key and those above it are of pairs that are no merge.
  static constexpr uint32_t kNoKey = MergeTable::kNoRank << kPlaceBits;

  void MergeShort();
  void StartKeys();
  void SetKey(size_t place);
  void JoinShort(size_t place);

  void MergeLong();
  void StartLinks();
  void FindMerge(uint32_t place);
  void JoinLong(uint32_t place);
  uint64_t HeapKey(uint32_t place) const {
    return uint64_t{links_[place].merge.rank} << 32 | place;
  }

  const MergeTable& merges_;
  std::vector<uint32_t>* symbols_ = nullptr;  // in Merge
  uint32_t keys_[kShort];                     // of the merge with the next: rank, place
  uint32_t lowest_[kShort / kBlock];          // key of each block
  uint32_t joined_[kShort];                   // what that merge makes
  uint8_t next_[kShort], previous_[kShort];
  std::vector<Link> links_;
  std::vector<uint64_t> heap_;  // rank, place
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PAIR_MERGER_H_
