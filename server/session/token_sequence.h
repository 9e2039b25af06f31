// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The token ids of a session. Copies share them: they are kept in blocks that never change once
// they are full, so a copy costs a pointer for each block and the ids since the last full one.
//
// What all sequences of a server hold is counted in a ledger, shared ids once.
//
// Threading: like a container. Copies may live and die on different threads.
#ifndef RIVULET_SERVER_SESSION_TOKEN_SEQUENCE_H_
#define RIVULET_SERVER_SESSION_TOKEN_SEQUENCE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rivulet {

class TokenLedger {
 public:
  uint64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  friend class TokenSequence;
  std::atomic<uint64_t> held_{0};
};

class TokenSequence {
 public:
  // Ids of a full block.
  static constexpr size_t kBlock = 2048;

  explicit TokenSequence(std::shared_ptr<TokenLedger> ledger) : ledger_(std::move(ledger)) {}
  TokenSequence(const TokenSequence& other);
  TokenSequence& operator=(const TokenSequence&) = delete;
  ~TokenSequence() { Count(0 - open_.size()); }

  size_t size() const { return blocks_.size() * kBlock + open_.size(); }
  bool empty() const { return size() == 0; }
  // REQUIRES: i < size().
  uint32_t operator[](size_t i) const {
    return i / kBlock < blocks_.size() ? blocks_[i / kBlock]->ids[i % kBlock] : open_[i % kBlock];
  }

  void Append(uint32_t token) { Append(std::span(&token, 1)); }
  // Without memory it throws std::bad_alloc and has appended some of them.
  void Append(std::span<const uint32_t> tokens);
  // Forgets all but the first `size`. REQUIRES: size <= size().
  void Truncate(size_t size);
  // Appends ids first .. first + count - 1 to `to`.
  void CopyTo(size_t first, size_t count, std::vector<uint32_t>& to) const;

  std::vector<uint32_t> Copy() const {
    std::vector<uint32_t> copy;
    CopyTo(0, size(), copy);
    return copy;
  }

  // What a copy takes, about.
  size_t copy_bytes() const {
    return blocks_.size() * sizeof(blocks_[0]) + open_.size() * sizeof(open_[0]);
  }

 private:
  struct Block {
    ~Block() { ledger->held_.fetch_sub(kBlock, std::memory_order_relaxed); }
    std::vector<uint32_t> ids;
    std::shared_ptr<TokenLedger> ledger;
  };
  void Count(size_t ids) { ledger_->held_.fetch_add(ids, std::memory_order_relaxed); }
  void CloseBlock();

  std::shared_ptr<TokenLedger> ledger_;
  std::vector<std::shared_ptr<const Block>> blocks_;
  std::vector<uint32_t> open_;  // fewer than kBlock
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_TOKEN_SEQUENCE_H_
