// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule over base and tail (docs/mixers.md#deltanet, #gated-deltanet): a sum whose every
// write is corrected by what the sum already answers to its key,
//
//     S̄ = e^{g_t} S_{t-1}      u_t = β_t (v_t - k_t S̄)      S_t = S̄ + k_tᵀ u_t      o_t = q_t S_t
//
// the decay before the prediction. In the rows u it is the plain decayed sum of recurrence.h, so
// the tail keeps u instead of v: each row is solved once, when it is appended,
//
//     u_a = β_a (v_a - e^{c_a} k_a S_0 - Σ_{s<a} e^{c_a - c_s} (k_a·k_s) u_s)
//
// (with a decay by channel, KDA, e^{...} sits inside the products: Σ_i k_ai k_si e^{c_ai - c_si})
// by forward substitution in the triangle of the WY form, and from then on Read and Fold are those
// of any other sum (FoldSum serves as it is). Kept as raw v and β, every later token of the chunk
// would solve the rows before it again, and read the base with all of their keys.
//
// A token costs one pass over the base for two queries, k_a and q_a, at decode as in a
// prompt.
//
// The low-rank form (RWKV-7, docs/mixers.md#rwkv-7) is the same with what is read, what is
// corrected and what is added apart from each other, and the read before the decay:
//
//     u_t = a_t S_{t-1}      S_t = diag(e^{g_t}) S_{t-1} + k_tᵀ v_t + b_tᵀ u_t      o_t = q_t S_t
//
// A token then has two rows in the tail, k with v and b with u (SumTail::rows_a_token).
//
// Bits: as recurrence.h says: each number is one chain, channels of the base ascending, then
// rows of the tail ascending; any cut of a chunk into pieces gives the same bits. Threading and
// padding are recurrence.h's too.
#ifndef RIVULET_KERNELS_RECURRENCE_DELTA_H_
#define RIVULET_KERNELS_RECURRENCE_DELTA_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// The tokens at places [begin, begin + queries.rows) of the chunk, at most C. The caller appends
// their keys and log decays to the tail before the calls below.
struct DeltaPiece {
  ConstFloatMatrix queries;     // [n, padded D]
  ConstFloatMatrix values;      // [n, padded E]: v
  const float* beta = nullptr;  // [n], beta_stride apart
  size_t beta_stride = 0;
  size_t begin = 0;
  float* solved = nullptr;  // [C, padded E]: u, which the tail has as its values
};

// The products of a piece's queries and keys with the tail's keys. Without a decay by channel they
// leave the decay out, and are the same for all value heads that share a key head, so they are
// computed once for them. [n, C] each, rows kMaxFoldInterval apart; of a row, whole blocks up to
// its place are written.
struct DeltaScores {
  alignas(64) float query[kMaxFoldInterval * kMaxFoldInterval];  // q_a·k_s for s <= a, else 0
  alignas(64) float key[kMaxFoldInterval * kMaxFoldInterval];    // k_a·k_s for s < a, else 0
};
void ScoreDelta(const SumTail& tail, const ConstFloatMatrix& queries, size_t begin,
                DeltaScores& scores);
// The same with tail.log_decay, which is by channel: decayed products, of one value head.
void ScoreDecayedDelta(const SumTail& tail, const ConstFloatMatrix& queries, size_t begin,
                       DeltaScores& scores);

// Solves the piece's rows into piece.solved, and out [n, padded E] = the reads o_a. `shape` has no
// normaliser. Reads `base`, never writes it. out must not alias any input.
void SolveDelta(const SumShape& shape, const SumBase& base, const SumTail& tail,
                const DeltaPiece& piece, const DeltaScores& scores, FloatMatrix out);

// The tokens of a low-rank form at places [begin, begin + queries.rows), at most C. The caller
// appends their keys k and b, values v and log decays to the tail before the call.
struct LowRankPiece {
  ConstFloatMatrix queries;     // [n, padded D]: q
  ConstFloatMatrix readers;     // [n, padded D]: a
  ConstFloatMatrix log_decays;  // [n, padded D]: g, of each token alone
  size_t begin = 0;
  float* solved = nullptr;  // row u of place 0: every second row of the tail's values
};

// Solves the piece's rows u, and out [n, padded E] = the reads. `shape` decays by channel and has
// no normaliser; tail.rows_a_token is 2. Otherwise as SolveDelta.
void SolveLowRank(const SumShape& shape, const SumBase& base, const SumTail& tail,
                  const LowRankPiece& piece, FloatMatrix out);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_DELTA_H_
