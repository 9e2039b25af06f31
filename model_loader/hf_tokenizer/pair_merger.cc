// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/pair_merger.h"

#include <algorithm>
#include <functional>

namespace rivulet {
namespace {

constexpr uint32_t kNoRank = MergeTable::kNoRank;
constexpr uint32_t kNone = UINT32_MAX;  // of places

// Not by vectors: those would wait for a key that was just stored.
uint32_t LowestOfEight(const uint32_t* keys) {
  return std::min(std::min(std::min(keys[0], keys[1]), std::min(keys[2], keys[3])),
                  std::min(std::min(keys[4], keys[5]), std::min(keys[6], keys[7])));
}

}  // namespace

void PairMerger::Merge(std::vector<uint32_t>* symbols) {
  constexpr uint32_t kShortRanks = UINT32_MAX >> kPlaceBits;  // lower ranks have room in a key
  symbols_ = symbols;
  if (symbols->size() <= kShort && merges_.end_rank() <= kShortRanks) {
    MergeShort();
  } else {
    MergeLong();
  }
}

// The lowest key of each block is kept, so that a merge looks through the blocks that it changes
// and no others: faster than a heap.
void PairMerger::MergeShort() {
  StartKeys();
  for (;;) {
    const uint32_t lowest = std::min(LowestOfEight(lowest_), LowestOfEight(lowest_ + 8));
    if (lowest >= kNoKey) break;
    JoinShort(lowest % kShort);
  }
  const size_t count = symbols_->size();
  size_t kept = 0;
  for (size_t i = 0; i < count; i = next_[i]) (*symbols_)[kept++] = (*symbols_)[i];
  symbols_->resize(kept);
}

void PairMerger::StartKeys() {
  const size_t count = symbols_->size();
  for (size_t i = 0; i < count; ++i) {
    next_[i] = static_cast<uint8_t>(i + 1);
    previous_[i] = static_cast<uint8_t>(i - 1);
  }
  for (size_t i = 0; i < count; ++i) SetKey(i);
  const size_t blocks = (count + kBlock - 1) / kBlock;
  std::fill(keys_ + count, keys_ + blocks * kBlock, kNoKey);
  std::fill(lowest_ + blocks, std::end(lowest_), kNoKey);
  for (size_t i = 0; i < blocks; ++i) lowest_[i] = LowestOfEight(keys_ + i * kBlock);
}

void PairMerger::SetKey(size_t place) {
  const std::vector<uint32_t>& symbols = *symbols_;
  const size_t next = next_[place];
  keys_[place] = kNoKey;
  if (next == symbols.size()) return;
  const auto [rank, joined] = merges_.Find(symbols[place], symbols[next]);
  joined_[place] = joined;
  keys_[place] = static_cast<uint32_t>(rank << kPlaceBits | place);
}

void PairMerger::JoinShort(size_t place) {
  const size_t joined = next_[place];
  const size_t before = place > 0 ? previous_[place] : place;
  (*symbols_)[place] = joined_[place];
  next_[place] = next_[joined];
  if (next_[place] < symbols_->size()) previous_[next_[place]] = static_cast<uint8_t>(place);
  keys_[joined] = kNoKey;
  SetKey(place);
  if (before != place) SetKey(before);
  for (size_t i = before / kBlock; i <= joined / kBlock; ++i) {
    lowest_[i] = LowestOfEight(keys_ + i * kBlock);
  }
}

// The heap may hold merges that are no longer there; their ranks tell.
void PairMerger::MergeLong() {
  StartLinks();
  while (!heap_.empty()) {
    const uint64_t top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    const auto place = static_cast<uint32_t>(top);
    if (links_[place].merge.rank == static_cast<uint32_t>(top >> 32)) JoinLong(place);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kNone; i = links_[i].next) (*symbols_)[kept++] = (*symbols_)[i];
  symbols_->resize(kept);
}

void PairMerger::StartLinks() {
  const auto count = static_cast<uint32_t>(symbols_->size());
  links_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    links_[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, {}};
    if (i + 1 == count) continue;
    links_[i].merge = merges_.Find((*symbols_)[i], (*symbols_)[i + 1]);
    if (links_[i].merge.rank != kNoRank) heap_.push_back(HeapKey(i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PairMerger::JoinLong(uint32_t place) {
  Link& link = links_[place];
  (*symbols_)[place] = link.merge.joined;
  Link& joined = links_[link.next];
  joined.merge = {};
  link.next = joined.next;
  if (link.next != kNone) links_[link.next].previous = place;
  FindMerge(place);
  if (link.previous != kNone) FindMerge(link.previous);
}

void PairMerger::FindMerge(uint32_t place) {
  Link& link = links_[place];
  link.merge = {};
  if (link.next != kNone) link.merge = merges_.Find((*symbols_)[place], (*symbols_)[link.next]);
  if (link.merge.rank == kNoRank) return;
  heap_.push_back(HeapKey(place));
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

}  // namespace rivulet
