// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_tokenizer/pair_merger.h"

#include <algorithm>
#include <functional>

namespace rivulet {
namespace {

constexpr uint32_t kNoRank = MergeTable::kNoRank;
constexpr uint32_t kNone = UINT32_MAX;  // of places
constexpr int32_t kNoKey = INT32_MAX;

}  // namespace

void PairMerger::Merge(std::vector<uint32_t>* symbols) {
  constexpr size_t kShortRanks = INT32_MAX >> kPlaceBits;  // lower ranks have room in a key
  symbols_ = symbols;
  if (symbols->size() <= kShort && merges_.size() < kShortRanks) {
    MergeShort();
  } else {
    MergeLong();
  }
}

// The lowest key is looked for among all of them, four at once: faster than a heap.
void PairMerger::MergeShort() {
  StartKeys();
  const size_t count = symbols_->size();
  for (;;) {
    int32_t lowest = kNoKey;
    for (size_t i = 0; i < count; ++i) lowest = std::min(lowest, keys_[i]);
    if (lowest == kNoKey) break;
    const auto key = static_cast<uint32_t>(lowest);
    JoinShort(key % kShort, key >> kPlaceBits);
  }
  size_t kept = 0;
  for (size_t i = 0; i < count; i = next_[i]) (*symbols_)[kept++] = (*symbols_)[i];
  symbols_->resize(kept);
}

void PairMerger::StartKeys() {
  for (size_t i = 0; i < symbols_->size(); ++i) {
    next_[i] = static_cast<uint8_t>(i + 1);
    previous_[i] = static_cast<uint8_t>(i - 1);
    SetKey(i);
  }
}

void PairMerger::SetKey(size_t place) {
  const std::vector<uint32_t>& symbols = *symbols_;
  const size_t next = next_[place];
  const uint32_t rank =
      next == symbols.size() ? kNoRank : merges_.Rank(symbols[place], symbols[next]);
  keys_[place] = rank == kNoRank ? kNoKey : static_cast<int32_t>(rank << kPlaceBits | place);
}

void PairMerger::JoinShort(size_t place, uint32_t rank) {
  (*symbols_)[place] = merges_.Joined(rank);
  const size_t joined = next_[place];
  keys_[joined] = kNoKey;
  next_[place] = next_[joined];
  if (next_[place] < symbols_->size()) previous_[next_[place]] = static_cast<uint8_t>(place);
  SetKey(place);
  if (place > 0) SetKey(previous_[place]);
}

// The heap may hold merges that are no longer there; their ranks tell.
void PairMerger::MergeLong() {
  StartLinks();
  while (!heap_.empty()) {
    const uint64_t top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    const auto place = static_cast<uint32_t>(top);
    if (links_[place].rank == static_cast<uint32_t>(top >> 32)) JoinLong(place);
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
    links_[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, kNoRank};
    if (i + 1 == count) continue;
    links_[i].rank = merges_.Rank((*symbols_)[i], (*symbols_)[i + 1]);
    if (links_[i].rank != kNoRank) heap_.push_back(HeapKey(i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void PairMerger::JoinLong(uint32_t place) {
  Link& link = links_[place];
  (*symbols_)[place] = merges_.Joined(link.rank);
  Link& joined = links_[link.next];
  joined.rank = kNoRank;
  link.next = joined.next;
  if (link.next != kNone) links_[link.next].previous = place;
  FindMerge(place);
  if (link.previous != kNone) FindMerge(link.previous);
}

void PairMerger::FindMerge(uint32_t place) {
  Link& link = links_[place];
  link.rank =
      link.next == kNone ? kNoRank : merges_.Rank((*symbols_)[place], (*symbols_)[link.next]);
  if (link.rank == kNoRank) return;
  heap_.push_back(HeapKey(place));
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

}  // namespace rivulet
