// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Gated DeltaNet's recurrence (docs/mixers.md#log-linear-gated-deltanet): Gated
// DeltaNet's with every term of the read weighted by how far it lies back,
//
//   o_t = Σ_{s<=t} λ_t[ℓ(t, s)] (q_t A_t A_{t-1} ... A_{s+1} k_sᵀ) β_s v_s
//   A_r = e^{g_r} (I - β_r k_rᵀk_r)
//
// over the pages of kernels/recurrence/fenwick.h, delta form. Each head has its own q, k and v.
//
// Letters: T tokens, H heads, D key width, E value width; Dp and Ep padded.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"
#include "kernels/mixers/log_linear/paged_sum.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct LogLinearGatedDeltaNetInput {
  DeltaRuleInput rule;
  ConstFloatMatrix weights;  // [T, H*Lv]: λ, (head, level)
};

class LogLinearGatedDeltaNetRecurrence {
 public:
  // `shape` decays and has as many key heads as value heads. Adds its planes to `layout`
  // (README.md) and sets its kind of pages.
  LogLinearGatedDeltaNetRecurrence(const DeltaRuleShape& shape, uint32_t levels,
                                   StateLayout& layout);

  const DeltaRuleShape& shape() const { return shape_; }
  uint32_t levels() const { return sum_.shape().levels; }

  // out [T, H*Ep]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state,
           const LogLinearGatedDeltaNetInput& input, FloatMatrix out, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state,
                const LogLinearGatedDeltaNetInput& input, FloatMatrix out) const;
  FenwickTail Append(const HeadPiece& piece, const LayerState& state,
                     const DeltaRuleInput& input) const;

  DeltaRuleShape shape_;
  PagedSum sum_;
  size_t k_offset_, v_offset_, beta_offset_, log_decay_offset_, overlap_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_RECURRENCE_H_
