// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where the last few tokens of a growing text stood before in it. A table of positions by hash: a
// later position replaces an earlier one, so the answer is the last that the table still knows, and
// the caller compares tokens. So memory is bounded, and a token costs O(1).
//
// A text that is there from the start is entered backwards, a piece a call, so that no call takes
// long and what came last is found first.
//
// Threading: like a container.
#ifndef RIVULET_SERVER_DRAFTS_LOOKUP_INDEX_H_
#define RIVULET_SERVER_DRAFTS_LOOKUP_INDEX_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rivulet {

class LookupIndex {
 public:
  // Positions in the largest table, 4 bytes each.
  static constexpr size_t kMostEntries = size_t{1} << 19;
  // Positions that a call enters beside new ones.
  static constexpr size_t kPiece = 128;

  // Looks for runs of `gram` tokens.
  explicit LookupIndex(size_t gram) : gram_(gram) {}

  size_t bytes() const { return table_.size() * sizeof(table_[0]); }

  // Enters what `tokens` has gained, and `piece` positions of what was there before. `Tokens` has
  // size() and operator[].
  template <typename Tokens>
  void Follow(const Tokens& tokens, size_t piece = kPiece) {
    if (table_.empty() || Crowded()) Restart(tokens.size());
    // A place is entered once a token follows it.
    for (; forward_ < tokens.size(); ++forward_) Enter(tokens, forward_, /*replace=*/true);
    for (; piece > 0 && backward_ >= gram_; --piece) Enter(tokens, backward_--, /*replace=*/false);
  }

  // The place after the last run that equals the `gram` tokens of `text` before place `end`; 0:
  // none is known. REQUIRES: `tokens` is what was followed.
  template <typename Tokens, typename Text>
  uint64_t Find(const Tokens& tokens, const Text& text, uint64_t end) const {
    if (end < gram_ || table_.empty()) return 0;
    const uint64_t place = table_[Slot(text, end)];
    if (place == 0) return 0;
    for (size_t i = 1; i <= gram_; ++i) {
      if (tokens[place - i] != text[end - i]) return 0;
    }
    return place;
  }

 private:
  static constexpr size_t kFewestEntries = 1024;

  bool Crowded() const { return 2 * entered_ > table_.size() && table_.size() < kMostEntries; }

  // Makes a table for so many tokens and some more. What is there is entered backwards.
  void Restart(size_t tokens) {
    const size_t entries = std::bit_ceil(std::max(4 * (tokens + 1), kFewestEntries));
    table_.assign(std::min(entries, kMostEntries), 0);
    entered_ = 0;
    forward_ = tokens;
    backward_ = tokens == 0 ? 0 : tokens - 1;
  }

  template <typename Tokens>
  void Enter(const Tokens& tokens, uint64_t place, bool replace) {
    if (place < gram_ || place > UINT32_MAX) return;
    uint32_t& entry = table_[Slot(tokens, place)];
    entered_ += entry == 0 ? 1 : 0;
    if (replace || entry == 0) entry = static_cast<uint32_t>(place);
  }

  template <typename Text>
  size_t Slot(const Text& text, uint64_t end) const {
    uint64_t hash = 0;
    for (size_t i = gram_; i > 0; --i) hash = (hash ^ text[end - i]) * 0x9E3779B97F4A7C15u;
    return (hash ^ hash >> 32) & (table_.size() - 1);
  }

  const size_t gram_;
  std::vector<uint32_t> table_;  // 0: nothing
  size_t entered_ = 0;           // places that are not 0
  uint64_t forward_ = 0;         // the next place to enter of those to come
  uint64_t backward_ = 0;        // and of those before
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_DRAFTS_LOOKUP_INDEX_H_
