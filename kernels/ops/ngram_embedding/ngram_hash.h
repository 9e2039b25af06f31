// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which rows of a table belong to the last tokens of a session (Qwen4-Exp;
// docs/mixers.md#embeddings-of-n-grams): for each order m of 2 .. N and each of its heads, with
// tokens t_0 (the current one), t_1 (the one before), ...,
//
//   row = offset + (t_0 a_0 xor t_1 a_1 xor ... xor t_(m-1) a_(m-1)) mod size
//
// Sizes are the primes from `base` on, one for each head of each layer; the a_i are odd numbers
// that SplitMix64 draws.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_OPS_NGRAM_EMBEDDING_NGRAM_HASH_H_
#define RIVULET_KERNELS_OPS_NGRAM_EMBEDDING_NGRAM_HASH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rivulet {

inline constexpr size_t kMostNgram = 8;
inline constexpr size_t kMostNgramHeads = 64;  // of an order

struct NgramHashConfig {
  size_t vocab = 0;  // above every token
  size_t ngram = 0;  // N, the largest order, in [2, kMostNgram]
  size_t heads = 0;  // of each order
  size_t layer = 0;  // among the layers that have a table
  uint64_t seed = 0;
  uint64_t base = 0;    // no size is smaller
  size_t multiple = 1;  // the rows of a table are padded to a multiple of this
};

class NgramHash {
 public:
  explicit NgramHash(const NgramHashConfig& config);

  size_t ngram() const { return multipliers_.size(); }
  size_t heads() const { return sizes_.size(); }  // of all orders
  uint64_t rows() const { return rows_; }         // of the table, padding included

  // rows [heads()] of the current token and those before it, tokens [N].
  void RowsOf(std::span<const uint32_t> tokens, uint32_t* rows) const;

  // Multipliers, sizes and offsets one after the other, as a device takes them.
  std::vector<uint64_t> Numbers() const;

 private:
  std::vector<uint64_t> multipliers_;      // [N]
  std::vector<uint64_t> sizes_, offsets_;  // [heads()], order by order
  uint64_t rows_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_NGRAM_EMBEDDING_NGRAM_HASH_H_
