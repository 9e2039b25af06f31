// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2's state space duality (Dao and Gu 2024; docs/mixers.md#mamba-2) as one sum a head with a
// scalar decay, queries C_t, keys B_t, values Δ_t x_t, and no 1/√N:
//
//   S_t = e^{A Δ_t} S_{t-1} + B_tᵀ (Δ_t x_t)        y_t = C_t S_t + D ∘ x_t
//
// Letters: mamba2_tail.h.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/mamba2/mamba2_tail.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class Mamba2Recurrence {
 public:
  // Adds its planes to `layout` (README.md).
  Mamba2Recurrence(const Mamba2Shape& shape, Mamba2Constants constants, StateLayout& layout);

  const Mamba2Shape& shape() const { return tail_.shape(); }
  const Mamba2Constants& constants() const { return tail_.constants(); }

  // y [T, H*Pp]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const Mamba2Input& input,
           FloatMatrix y, ThreadPool& pool) const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const Mamba2Input& input,
                FloatMatrix y) const;
  SumBase Base(const LayerState& state, uint32_t slot, size_t head) const;

  Mamba2Tail tail_;
  SumShape sum_;
  size_t s_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_
