// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention of some query rows over one span of one kv head's tokens, and how the results
// of spans become the result of all (docs/mixers.md#softmax-attention, chunk form).
//
// Spans begin at absolute multiples of kSpanTokens in the session. What a span leaves of a row is
// its partial: the largest score m, l = Σ e^{score - m} and o = Σ e^{score - m} v over the tokens
// of the span that the row sees. Partials are joined in ascending order:
//
//     m' = max(m1, m2)    l' = l1 e^{m1-m'} + l2 e^{m2-m'}    o' = o1 e^{m1-m'} + o2 e^{m2-m'}
//
// Bits: inside a span, blocks of kBlockTokens at absolute borders ascend; a score is one chain of
// fused multiply-adds over the head's numbers ascending; a block's largest score rescales what is
// before it once; weights are summed in 16 lanes (token mod 16), ascending, and then down the fixed
// tree; a number of o is one chain over tokens ascending. So a row's bits depend on the row, the
// tokens it sees and their places alone: not on which rows it is read with, on who computes which
// span, nor on how keys and values are spread over slots.
//
// Keys lie transposed, [head_dim, C tokens], so that vector lanes run over tokens and a score
// needs no reduction; values are rows.
//
// Threading: pure functions; two calls may run at once unless they share a partial.
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_ATTEND_SPAN_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_ATTEND_SPAN_H_

#include <cstddef>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// The widest head of softmax attention; wider ones are refused at load.
inline constexpr size_t kMostAttentionHeadDim = 256;
// The widest values that a partial is kept for: the latents of latent attention are as wide.
inline constexpr size_t kMostAttendedValues = 512;
// One task of a long context. 1024 tokens of a head of 128 are 1 MiB of fp32: worth a thread, and
// small beside a context that is worth several.
inline constexpr size_t kSpanTokens = 1024;
// Tokens come in groups of 16: the smallest pages are one group.
inline constexpr size_t kSpanGroups = kSpanTokens / kBlock;
// Scores that are known before their weights are used.
inline constexpr size_t kBlockTokens = 128;

// One kv head's tokens of one span, in groups of 16. Groups that no row sees may be null.
struct SpanTokens {
  size_t head_dim = 0;                   // of queries and keys
  size_t value_dim = 0;                  // at most head_dim and kMostAttendedValues
  DType dtype = DType::kFloat32;         // kFloat32 or kBFloat16
  size_t key_stride = 0;                 // C: from one number of the keys to the next
  const void* keys[kSpanGroups] = {};    // [head_dim, 16]
  const void* values[kSpanGroups] = {};  // [16, padded value_dim]
};

// A query row and the tokens of the span that it sees: [begin, end), counted from the span's first,
// not empty.
struct SpanQuery {
  const float* query = nullptr;  // [head_dim], scaled already
  size_t begin = 0, end = 0;
  float* partial = nullptr;  // [PartialFloats(value_dim)], 64-byte aligned
};

// Floats of a partial: o over the padded width, one block for l, one for m.
constexpr size_t PartialFloats(size_t value_dim) { return PaddedColumns(value_dim) + 2 * kBlock; }

// Writes the rows' partials. Fastest when rows that see the same tokens stand side by side.
void AttendSpan(const SpanTokens& tokens, std::span<const SpanQuery> rows);

// first = first joined with second, which is of a later span.
void JoinPartials(size_t value_dim, float* first, const float* second);

// out [value_dim] = o / l. Writes exactly value_dim numbers.
void FinishPartial(size_t value_dim, const float* partial, float* out);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_ATTEND_SPAN_H_
