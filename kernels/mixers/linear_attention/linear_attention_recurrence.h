// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Linear attention (Katharopoulos et al. 2020; docs/mixers.md#linear-attention) as one undecayed
// sum for each kv head:
//
//   S_t = S_{t-1} + φk_tᵀ v_t     z_t = z_{t-1} + φk_t
//   o_t = φq_t S_t                normalised: o_t = φq_t S_t / (φq_t·z_t + 1e-10)
//
// Letters: T tokens, H query heads, Hkv kv heads, R features, E value width; Rp and Ep padded.
// Query heads h*H/Hkv ... of kv head h read the same S. q, k are features φ(·) already, q scaled.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_RECURRENCE_H_

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

struct LinearAttentionShape {
  size_t heads = 0;      // H
  size_t kv_heads = 0;   // Hkv, divides H
  size_t features = 0;   // R <= kMaxKeyDim
  size_t value_dim = 0;  // E
  bool normalised = false;
  DType state_dtype = DType::kFloat32;

  size_t group() const { return heads / kv_heads; }
  size_t padded_features() const { return PaddedColumns(features); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// q [T, H*Rp], k [T, Hkv*Rp], v [T, Hkv*Ep], fp32, zeros in the padding of each head.
struct LinearAttentionInput {
  ConstFloatMatrix q, k, v;
};

class LinearAttentionRecurrence {
 public:
  static constexpr float kDenominatorEps = 1e-10f;

  // Adds its planes to `layout` (README.md).
  LinearAttentionRecurrence(const LinearAttentionShape& shape, StateLayout& layout);

  const LinearAttentionShape& shape() const { return shape_; }

  // out [T, H*Ep]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state,
           const LinearAttentionInput& input, FloatMatrix out, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const LinearAttentionInput& input,
                FloatMatrix out) const;
  SumBase Base(const LayerState& state, uint32_t slot, size_t kv_head) const;

  LinearAttentionShape shape_;
  SumShape sum_;
  size_t s_offset_ = 0, z_offset_ = 0, k_offset_ = 0, v_offset_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_RECURRENCE_H_
