// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How often each token has occurred: what the penalties need of a history, in space of the distinct
// tokens and not of the history's length. A fork of a session copies it.
//
// If it finds no memory, Add throws std::bad_alloc and has changed nothing. (Abseil's hash map
// could not even be destroyed then.)
//
// Threading: like a container.
#ifndef RIVULET_KERNELS_OPS_SAMPLING_TOKEN_COUNTS_H_
#define RIVULET_KERNELS_OPS_SAMPLING_TOKEN_COUNTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rivulet {

class TokenCounts {
 public:
  void Add(uint32_t token, uint32_t times = 1) {
    if (2 * entries_.size() >= slots_.size()) Grow();
    const size_t slot = SlotOf(token);
    if (slots_[slot] == kFree) {
      entries_.push_back({token, 0});
      slots_[slot] = static_cast<uint32_t>(entries_.size() - 1);
    }
    entries_[slots_[slot]].count += times;
  }
  // Adds all tokens or, without memory, those before some token.
  void Add(std::span<const uint32_t> tokens) {
    for (uint32_t token : tokens) Add(token);
  }
  // These less `others`, each of which is among them.
  TokenCounts Without(const TokenCounts& others) const {
    TokenCounts rest;
    for (const Entry& entry : entries_) {
      const uint32_t gone = others.count(entry.token);
      if (entry.count > gone) rest.Add(entry.token, entry.count - gone);
    }
    return rest;
  }
  void Clear() {
    entries_.clear();
    std::fill(slots_.begin(), slots_.end(), kFree);
  }

  bool empty() const { return entries_.empty(); }
  size_t distinct() const { return entries_.size(); }
  uint32_t count(uint32_t token) const {
    if (entries_.empty()) return 0;
    const uint32_t entry = slots_[SlotOf(token)];
    return entry == kFree ? 0 : entries_[entry].count;
  }

  // visit(token, count) for each token that occurred, in no particular order.
  template <typename Visit>
  void ForEach(Visit&& visit) const {
    for (const Entry& entry : entries_) visit(entry.token, entry.count);
  }

 private:
  static constexpr uint32_t kFree = UINT32_MAX;
  static constexpr size_t kLeastSlots = 16;
  struct Entry {
    uint32_t token;
    uint32_t count;
  };

  // The slot that has the token's entry, or the free one where it belongs. REQUIRES: a free slot.
  size_t SlotOf(uint32_t token) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = (token * uint64_t{0x9E3779B97F4A7C15} >> 32) & mask;
    while (slots_[slot] != kFree && entries_[slots_[slot]].token != token) slot = (slot + 1) & mask;
    return slot;
  }
  void Grow() {
    slots_.assign(std::max(kLeastSlots, 2 * slots_.size()), kFree);
    for (uint32_t i = 0; i < entries_.size(); ++i) slots_[SlotOf(entries_[i].token)] = i;
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // numbers of entries; a power of two, at least half of them free
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SAMPLING_TOKEN_COUNTS_H_
