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
    uint32_t rank;  // of the merge with the next
  };
  static constexpr size_t kPlaceBits = 7;
  static constexpr size_t kShort = size_t{1} << kPlaceBits;

  void MergeShort();
  void StartKeys();
  void SetKey(size_t place);
  void JoinShort(size_t place, uint32_t rank);

  void MergeLong();
  void StartLinks();
  void FindMerge(uint32_t place);
  void JoinLong(uint32_t place);
  uint64_t HeapKey(uint32_t place) const { return uint64_t{links_[place].rank} << 32 | place; }

  const MergeTable& merges_;
  std::vector<uint32_t>* symbols_ = nullptr;  // in Merge
  int32_t keys_[kShort];                      // rank, place
  uint8_t next_[kShort], previous_[kShort];
  std::vector<Link> links_;
  std::vector<uint64_t> heap_;  // rank, place
};

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_TOKENIZER_PAIR_MERGER_H_
