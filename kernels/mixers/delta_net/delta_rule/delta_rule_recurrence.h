// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule (docs/mixers.md#deltanet, #gated-deltanet): DeltaNet without decay, Gated DeltaNet
// with one decay a value head,
//
//   S̄ = e^{g_t} S_{t-1}    u_t = β_t (v_t - k_t S̄)    S_t = S̄ + k_tᵀ u_t    o_t = q_t S_t
//
// over the solved rows of kernels/recurrence/delta.h.
//
// Letters: T tokens, Hk key heads, Hv value heads, D key width, E value width; Dp and Ep padded.
// Each value head has its own S, β and decay; value heads j*Hv/Hk ... share q and k of key head j
// (grouped value attention).
//
// Threading: constant after construction. One key head of one session is a unit of work, so that
// its value heads share the scores of their keys.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/recurrence/delta.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct DeltaRuleShape {
  size_t key_heads = 0;    // Hk
  size_t value_heads = 0;  // Hv, a multiple of Hk
  size_t key_dim = 0;      // D <= kMaxKeyDim
  size_t value_dim = 0;    // E
  bool decays = false;
  DType state_dtype = DType::kFloat32;

  size_t group() const { return value_heads / key_heads; }
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

// q [T, Hk*Dp] scaled, k [T, Hk*Dp], v [T, Hv*Ep], β and log decay g <= 0 [T, Hv], fp32, zeros in
// the padding of each head. g is not read where the shape does not decay.
struct DeltaRuleInput {
  ConstFloatMatrix q, k, v, beta, log_decay;
};

class DeltaRuleRecurrence {
 public:
  // Adds its planes to `layout` (delta_net/README.md).
  DeltaRuleRecurrence(const DeltaRuleShape& shape, StateLayout& layout);

  const DeltaRuleShape& shape() const { return shape_; }

  // out [T, Hv*Ep]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const DeltaRuleInput& input,
           FloatMatrix out, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const DeltaRuleInput& input,
                FloatMatrix out) const;
  void RunValueHead(const HeadPiece& piece, size_t head, const DeltaScores& scores,
                    const LayerState& state, const DeltaRuleInput& input, FloatMatrix out) const;
  // The rows of value head `head`, whose key head is the piece's.
  DeltaTail Tail(const HeadPiece& piece, size_t head, const LayerState& state) const;
  void AppendDecays(const HeadPiece& piece, size_t head, const LayerState& state,
                    const DeltaRuleInput& input) const;
  SumBase Base(const LayerState& state, uint32_t slot, size_t head) const;

  DeltaRuleShape shape_;
  SumShape sum_;
  size_t s_offset_ = 0, k_offset_ = 0, u_offset_ = 0, log_decay_offset_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_RECURRENCE_H_
