// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Multi-scale retention (Sun et al. 2023) as one sum with a constant scalar decay for each head:
//
//   S_t = γ_h S_{t-1} + k_tᵀ v_t        o_t = q_t S_t        γ_h = 1 - 2^{-5-h}, h from 0
//
// Letters: T tokens, H query heads, Hkv kv heads, D key width, E value width; Dp and Ep padded.
// Query heads h*H/Hkv ... of kv head h share its keys and values, but each has its own γ and so its
// own S. q and k are rotated already.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_RETNET_RETNET_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_RETNET_RETNET_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/head_units.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct RetNetShape {
  size_t heads = 0;      // H
  size_t kv_heads = 0;   // Hkv, divides H
  size_t key_dim = 0;    // D <= kMaxKeyDim
  size_t value_dim = 0;  // E
  DType state_dtype = DType::kFloat32;

  size_t group() const { return heads / kv_heads; }
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// log γ of a head. 1 - 2^{-5-h} is rounded to fp32 before the logarithm, as fla has it: from the
// 21st head on it is 1, and nothing decays.
double RetentionLogDecay(size_t head);

// q [T, H*Dp] scaled, k [T, Hkv*Dp], v [T, Hkv*Ep], fp32, zeros in the padding of each head.
struct RetNetInput {
  ConstFloatMatrix q, k, v;
};

class RetNetRecurrence {
 public:
  // Adds its planes to `layout` (README.md).
  RetNetRecurrence(const RetNetShape& shape, StateLayout& layout);

  const RetNetShape& shape() const { return shape_; }

  // out [T, H*Ep]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const RetNetInput& input,
           FloatMatrix out, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const RetNetInput& input,
                FloatMatrix out) const;
  SumTail AppendPiece(const HeadPiece& piece, const LayerState& state,
                      const RetNetInput& input) const;
  SumBase Base(const LayerState& state, uint32_t slot, size_t head) const;

  RetNetShape shape_;
  SumShape sum_;
  size_t s_offset_, k_offset_, v_offset_;
  AlignedBuffer<float> log_decay_;  // [H, C]: (a + 1) log γ_h, the same in every chunk
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RETNET_RETNET_RECURRENCE_H_
