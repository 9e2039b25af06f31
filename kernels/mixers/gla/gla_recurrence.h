// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Gated linear attention (Yang et al. 2024; docs/mixers.md#gla) as one sum with a decay for each
// key channel:
//
//   S_t = diag(e^{g_t}) S_{t-1} + k_tᵀ v_t        o_t = q_t S_t
//
// The gate of token t decays the old state only, never its own write.
//
// Letters: T tokens, H query heads, Hkv kv heads, D key width, E value width; Dp and Ep padded.
// Query heads h*H/Hkv ... of kv head h read the same S.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_GLA_GLA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_GLA_GLA_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/head_units.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct GlaShape {
  size_t heads = 0;      // H
  size_t kv_heads = 0;   // Hkv, divides H
  size_t key_dim = 0;    // D <= kMaxKeyDim
  size_t value_dim = 0;  // E
  DType state_dtype = DType::kFloat32;

  size_t group() const { return heads / kv_heads; }
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// q [T, H*Dp] scaled, k [T, Hkv*Dp], v [T, Hkv*Ep], log_decay [T, Hkv*Dp] (g <= 0), fp32, zeros in
// the padding of each head.
struct GlaInput {
  ConstFloatMatrix q, k, v, log_decay;
};

class GlaRecurrence {
 public:
  // Adds its planes to `layout` (README.md).
  GlaRecurrence(const GlaShape& shape, StateLayout& layout);

  const GlaShape& shape() const { return shape_; }

  // out [T, H*Ep]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const GlaInput& input,
           FloatMatrix out, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const GlaInput& input,
                FloatMatrix out) const;
  SumTail AppendPiece(const HeadPiece& piece, const LayerState& state, const GlaInput& input) const;
  SumBase Base(const LayerState& state, uint32_t slot, size_t kv_head) const;

  GlaShape shape_;
  SumShape sum_;
  size_t s_offset_, k_offset_, v_offset_, log_decay_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GLA_GLA_RECURRENCE_H_
