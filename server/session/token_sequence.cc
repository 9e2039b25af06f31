// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/token_sequence.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace rivulet {

TokenSequence::TokenSequence(const TokenSequence& other)
    : ledger_(other.ledger_), blocks_(other.blocks_), open_(other.open_) {
  Count(open_.size());
}

void TokenSequence::Append(std::span<const uint32_t> tokens) {
  while (!tokens.empty()) {
    const auto part = tokens.first(std::min(tokens.size(), kBlock - open_.size()));
    open_.insert(open_.end(), part.begin(), part.end());
    Count(part.size());
    if (open_.size() == kBlock) CloseBlock();
    tokens = tokens.subspan(part.size());
  }
}

// What needs memory comes first.
void TokenSequence::CloseBlock() {
  blocks_.reserve(blocks_.size() + 1);
  std::vector<uint32_t> next;
  next.reserve(kBlock / 8);
  auto block = std::make_shared<Block>();
  block->ledger = ledger_;
  block->ids = std::exchange(open_, std::move(next));
  blocks_.push_back(std::move(block));
}

void TokenSequence::Truncate(size_t size) {
  RIVULET_CHECK(size <= this->size(), "truncates a sequence to more than it has");
  const size_t full = size / kBlock;
  if (full < blocks_.size()) {
    const std::vector<uint32_t>& ids = blocks_[full]->ids;
    std::vector<uint32_t> open(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(size % kBlock));
    Count(open.size() - open_.size());
    open_.swap(open);
    blocks_.resize(full);
    return;
  }
  Count(size % kBlock - open_.size());
  open_.resize(size % kBlock);
}

void TokenSequence::CopyTo(size_t first, size_t count, std::vector<uint32_t>& to) const {
  RIVULET_CHECK(first + count <= size(), "copies ids that a sequence does not have");
  while (count > 0) {
    const size_t block = first / kBlock, at = first % kBlock;
    const std::vector<uint32_t>& ids = block < blocks_.size() ? blocks_[block]->ids : open_;
    const size_t part = std::min(count, ids.size() - at);
    const auto begin = ids.begin() + static_cast<ptrdiff_t>(at);
    to.insert(to.end(), begin, begin + static_cast<ptrdiff_t>(part));
    first += part, count -= part;
  }
}

}  // namespace rivulet
