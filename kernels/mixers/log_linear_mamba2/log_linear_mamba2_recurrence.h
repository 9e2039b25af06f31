// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Mamba-2's recurrence (docs/mixers.md#log-linear-mamba-2): Mamba-2's with every term of
// the read weighted by how far it lies back,
//
//   y_t = Σ_{s<=t} λ_t[ℓ(t, s)] (C_t·B_s) e^{A (Δ_{s+1} + ... + Δ_t)} Δ_s x_s + D ∘ x_t
//
// over the pages of kernels/recurrence/fenwick.h and Mamba-2's own tail. One group.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_RECURRENCE_H_

#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/log_linear/paged_sum.h"
#include "kernels/mixers/mamba2/mamba2_tail.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct LogLinearMamba2Input {
  Mamba2Input mamba2;
  ConstFloatMatrix weights;  // [T, H*Lv]: λ, (head, level)
};

class LogLinearMamba2Recurrence {
 public:
  // `shape` has one group. Adds its planes to `layout` (README.md) and sets its kind of pages.
  LogLinearMamba2Recurrence(const Mamba2Shape& shape, uint32_t levels, Mamba2Constants constants,
                            StateLayout& layout);

  const Mamba2Shape& shape() const { return tail_.shape(); }
  const Mamba2Constants& constants() const { return tail_.constants(); }
  uint32_t levels() const { return sum_.shape().levels; }

  // y [T, H*Pp]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state,
           const LogLinearMamba2Input& input, FloatMatrix y, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const LogLinearMamba2Input& input,
                FloatMatrix y) const;

  Mamba2Tail tail_;
  PagedSum sum_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_RECURRENCE_H_
