// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The primitive that nearly every mixer is built from: a decayed sum of outer products with a read,
//
//     M_t = T_t M_{t-1} + k_tᵀ v_t        o_t = q_t M_t        (docs/mixers.md#the-primitive;
//     docs/architecture.md#state)
//
// kept as a base M (the sum at the last chunk border) and a tail of at most C rows
// (StateLayout::fold_interval) (k, v, decay) since. Three operations on ONE head of ONE session:
//
//     Append   the caller writes the token's row into the tail (a copy: head_units.h, AppendRows)
//     Read     o_a = e^{c_a} q_a M  +  Σ_{s<=a} (q_a·k_s) e^{c_a - c_s} v_s
//     Fold     M' = e^{c_{C-1}} M + Σ_s (e^{c_{C-1} - c_s} k_s)ᵀ v_s
//
// with c_a the sum of the log decays of the chunk's tokens 0..a. A decay is a scalar a head
// (RetNet, Mamba-2, HLA), a vector over the key channels (GLA: then e^{...} sits inside the sum
// over D), or absent. Decays are always e to the *difference*: e^{-c} alone overflows.
//
// A sum may carry a normaliser: one more value column, kept apart as an fp32 vector z [D], whose
// values are `extra` (1 if null). It is never stored in less than fp32
// (docs/architecture.md#bf16-state).
//
// What makes bits equal (docs/architecture.md#bit-equality): each output number is one chain of
// fused multiply-adds: the key channels ascending over the base, then one multiplication by the
// decay, then tail rows ascending. A score q·k_s runs over blocks of 16 channels in one chain a
// lane, and then down a fixed tree. Nothing depends on how many queries are read at once, on vector
// width (given fused multiply-add), on threads or on neighbours. So prefill (many queries of a
// chunk) and decode (one) agree bit for bit.
//
// It deliberately knows no session, slot or layer. Threading: pure functions of their arguments;
// two calls may run at once unless one writes what the other touches.
//
// Rows are padded: every pointer is 64-byte aligned, strides are multiples of kBlock floats, and
// the columns between D (or E) and its padded width hold zeros in q, k and v. Outputs are written
// over the padded width.
#ifndef RIVULET_KERNELS_RECURRENCE_RECURRENCE_H_
#define RIVULET_KERNELS_RECURRENCE_RECURRENCE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/decay.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// The largest key dimension; mixers refuse larger heads at load.
inline constexpr size_t kMaxKeyDim = 512;
// The largest C. Every C is a multiple of 16, the rows of one SIMD block.
inline constexpr size_t kMaxFoldInterval = 32;

// Constant after construction; one for each matrix of a mixer.
struct SumShape {
  size_t key_dim = 0;    // D
  size_t value_dim = 0;  // E
  Decay decay = Decay::kNone;
  bool normaliser = false;
  DType dtype = DType::kFloat32;  // how the base is stored: kFloat32 or kBFloat16

  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
  // Elements of one head's matrix [D, padded E] and of its normaliser [padded D].
  size_t matrix_elements() const { return key_dim * padded_value(); }
};

// One head's sum at a chunk border. `matrix` is [D, padded E] of SumShape::dtype, row-major;
// `normaliser` is [padded D] fp32, or null. A null matrix reads as zero, as does its normaliser:
// the base before a session's first border, whose bytes are never looked at.
struct SumBase {
  void* matrix = nullptr;
  float* normaliser = nullptr;
};

// One head's rows since the border: [C, ...] arrays, row s at base + s * stride
// (floats).
struct SumTail {
  const float* key = nullptr;  // [C, padded D]
  size_t key_stride = 0;
  const float* value = nullptr;  // [C, padded E]
  size_t value_stride = 0;
  // [C], stride extra_stride: the normaliser column's values. Null means 1 for every row.
  const float* extra = nullptr;
  size_t extra_stride = 0;
  // Cumulative log decays c_s, natural logarithm, <= 0: [C] (kScalar) or [C, padded D] (kChannel).
  const float* log_decay = nullptr;
  size_t decay_stride = 0;
  // Multiplies every c: 2 for HLA's γ², 3 for third order.
  float decay_power = 1.0f;
  size_t chunk = 0;  // C, 16 or 32: what FoldSum folds
  // 2: two rows of keys and of values for each token, one behind the other, with one decay
  // (SolveLowRank). ReadSum takes 1 alone.
  size_t rows_a_token = 1;
};

// Queries at places [begin, begin + queries.rows) of the chunk, at most C of them. Rows
// up to each place must already be in the tail. `strict` reads the sum as it was before the place's
// own token: rows s < a, decays up to a - 1 (docs/mixers.md#the-primitive, LA_strict).
struct SumQuery {
  ConstFloatMatrix queries;  // [n, padded D]
  size_t begin = 0;
  bool strict = false;
};

// out [n, padded E] = the reads. `extra` [n] = the normaliser's reads q·z (null if the shape has
// none). Reads `base`, never writes it. out must not alias any input.
void ReadSum(const SumShape& shape, const SumBase& base, const SumTail& tail, const SumQuery& query,
             FloatMatrix out, float* extra);

// to = the sum after all C rows of the tail. `to` may be `from` itself, with the same
// bits; otherwise they must not overlap. bf16 bases are rounded here, once in C tokens.
void FoldSum(const SumShape& shape, const SumBase& from, const SumBase& to, const SumTail& tail);

// The SIMD target these functions run on here, such as "AVX3"; for the log and the benchmarks.
const char* RecurrenceTarget();

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_RECURRENCE_H_
