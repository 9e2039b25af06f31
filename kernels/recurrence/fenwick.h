// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear sums over pages and tail (docs/mixers.md#log-linear-mamba-2,
// #log-linear-gated-deltanet; docs/architecture.md#state): a decayed sum of outer products whose
// every term is weighted by its distance,
//
//     o_t = Σ_{s<=t} λ_t[ℓ(t, s)] (q_t T_t ... T_{s+1} k_sᵀ) v_s        ℓ(t, s) = bit_length(t xor
//     s)
//
// λ belongs to the reader, so the terms may not be added up over levels. They are in the pages of
// a binary counter over chunks (state.h, PageRule): page p holds C · 2^p tokens, all of which the
// reader sees at level p + log2(C) + 1; the levels before that lie inside the tail. A model has Lv
// levels; what lies further back than the last one is read at the last one, which then is one page
// for all of it.
//
// Two transitions:
//   scalar   T = e^{g}: a page is written once and never again. What it has decayed by since is a
//            number in the session's reference to it (log_decay), so forks share pages for good.
//   delta    T = e^{g} (I - β kᵀk): what a page holds changes with every token. The factors without
//            the gate are applied to each page at a fold; the gate goes into its log_decay too. In
//            the tail, with N = stril(diag(β) K Kᵀ),
//
//              x_a (I + N) = (q_a·k_s)_{s<=a}        weight of v_s: x_as β_s e^{c_a - c_s}
//              q̂_a = q_a - Σ_s x_as β_s k_s          read of a page: e^{c_a + log_decay} q̂_a S
//              u (I + N)ᵀ = ...                      FoldFenwick below
//
// Operations on ONE head of ONE session, as in recurrence.h: the caller appends k, v, the
// cumulative log decay c and, for delta, β; AppendOverlap adds the row of N; ReadFenwick reads;
// FoldFenwick makes the chunk's page and carries.
//
// Bits: each output number is, for each page from the smallest up, one chain over the key channels
// and then one multiply-add with the page's weight; and then the rows of the tail, ascending.
// Nothing depends on how many queries are read at once or on the slots of the pages.
//
// Threading and padding are recurrence.h's.
#ifndef RIVULET_KERNELS_RECURRENCE_FENWICK_H_
#define RIVULET_KERNELS_RECURRENCE_FENWICK_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// The largest Lv: no two positions of 63 bits differ further back.
inline constexpr uint32_t kMaxLevels = 64;
// Levels inside a chunk of C tokens: bit_length of 0 to C - 1. 5 of 16 tokens, 6 of 32.
constexpr uint32_t TailLevels(size_t fold_interval) {
  return static_cast<uint32_t>(std::bit_width(fold_interval));
}

// PageKind::levels of a model with `levels` levels.
constexpr uint32_t FenwickPageCount(uint32_t levels, size_t fold_interval) {
  return levels > TailLevels(fold_interval) ? levels - TailLevels(fold_interval) : 1;
}

// The level at which page p is read.
constexpr uint32_t FenwickPageLevel(uint32_t page, uint32_t levels, size_t fold_interval) {
  return std::min(page + TailLevels(fold_interval), levels - 1);
}

// As many tokens as `levels` levels tell apart.
constexpr uint64_t FenwickCapacity(uint32_t levels) { return uint64_t{1} << (levels - 1); }

struct FenwickShape {
  size_t key_dim = 0;    // D <= kMaxKeyDim
  size_t value_dim = 0;  // E
  uint32_t levels = 0;   // Lv, 1 to kMaxLevels
  bool delta = false;
  DType dtype = DType::kFloat32;  // how pages are stored: kFloat32 or kBFloat16
  size_t fold_interval = 0;       // C, 16 or 32

  uint32_t pages() const { return FenwickPageCount(levels, fold_interval); }
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
  // Elements of one head's matrix [D, padded E].
  size_t matrix_elements() const { return key_dim * padded_value(); }
};

// One head's pages between two folds.
struct FenwickPages {
  // [pages()]: matrices [D, padded E] of FenwickShape::dtype; null for pages that do not exist.
  std::byte* matrix[kMaxLevels];
  // [pages(), 2]: what a page has decayed by since it was written, natural logarithm, as a sum of
  // two floats: after 2^15 folds one float would be off by more than the outputs may be.
  float* log_decay = nullptr;
};

// One head's rows since the border, of a scalar decay with decay_stride 1.
struct FenwickTail : SumTail {
  const float* beta = nullptr;  // delta: [C]
  float* overlap = nullptr;     // delta: [C, C], N
};

// Queries at places [begin, begin + queries.rows) of the chunk, at most C of them. Rows
// up to each place must already be in the tail.
struct FenwickQuery {
  ConstFloatMatrix queries;  // [n, padded D]
  ConstFloatMatrix weights;  // [n, Lv]: λ
  size_t begin = 0;
};

// Delta: rows [begin, begin + count) of tail.overlap. Keys and β up to there must be in the tail.
void AppendOverlap(const FenwickShape& shape, const FenwickTail& tail, size_t begin, size_t count);

// out [n, padded E] = the reads. out must not alias any input.
void ReadFenwick(const FenwickShape& shape, const FenwickPages& pages, const FenwickTail& tail,
                 const FenwickQuery& query, FloatMatrix out);

// After the last row of the session's chunk number `chunk`: `to` has the pages after the fold. Its
// CarryPage(chunk) is written from the chunk's rows and the pages of `from` that it takes up, which
// it must not be one of; for delta, every page that lives on is rewritten, in place or elsewhere
// with the same bits. Writes all of to.log_decay, which may be from.log_decay.
void FoldFenwick(const FenwickShape& shape, uint64_t chunk, const FenwickPages& from,
                 const FenwickPages& to, const FenwickTail& tail);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_FENWICK_H_
