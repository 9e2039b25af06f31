// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2's state space duality (Dao and Gu 2024; mixers.md 6) as one sum a head with a scalar
// decay, queries C_t, keys B_t, values Δ_t x_t, and no 1/√N:
//
//   S_t = e^{A Δ_t} S_{t-1} + B_tᵀ (Δ_t x_t)        y_t = C_t S_t + D ∘ x_t
//
// Letters: T tokens, H heads, G groups, N state size (the key width), P head width (the value
// width); Np and Pp padded. Head h reads B and C of group h / (H/G); the tail keeps B once a group.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_

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

struct Mamba2Shape {
  size_t heads = 0;       // H
  size_t groups = 0;      // G, divides H
  size_t state_size = 0;  // N <= kMaxKeyDim
  size_t head_dim = 0;    // P
  DType state_dtype = DType::kFloat32;

  size_t group_of(size_t head) const { return head / (heads / groups); }
  size_t padded_state() const { return PaddedColumns(state_size); }
  size_t padded_head() const { return PaddedColumns(head_dim); }
};

// The trained constants of the recurrence.
struct Mamba2Constants {
  AlignedBuffer<float> a;  // [H], -exp(A_log) < 0
  AlignedBuffer<float> d;  // [H*P], the skip
};

// x [T, H*P] without padding between heads; b, c [T, G*Np] with zeros in the padding of each group;
// delta [T, H] = Δ >= 0. All fp32.
struct Mamba2Input {
  ConstFloatMatrix x, b, c, delta;
};

class Mamba2Recurrence {
 public:
  // Adds its planes to `layout` (README.md).
  Mamba2Recurrence(const Mamba2Shape& shape, Mamba2Constants constants, StateLayout& layout);

  const Mamba2Shape& shape() const { return shape_; }
  const Mamba2Constants& constants() const { return constants_; }

  // y [T, H*Pp]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const Mamba2Input& input,
           FloatMatrix y, ThreadPool& pool) const;

 private:
  // Which rows of B a walk over segments keeps in the tail: those that the heads are about to read
  // there, or those that only a later step will.
  enum class Keep { kBeforeReads, kAfterReads };

  void KeepKeys(std::span<const Segment> segments, const LayerState& state,
                const Mamba2Input& input, Keep keep) const;
  void RunPiece(const HeadPiece& piece, const LayerState& state, const Mamba2Input& input,
                FloatMatrix y) const;
  SumTail AppendPiece(const HeadPiece& piece, const LayerState& state,
                      const Mamba2Input& input) const;
  SumCheckpoint Checkpoint(const LayerState& state, uint32_t slot, size_t head) const;

  Mamba2Shape shape_;
  Mamba2Constants constants_;
  SumShape sum_;
  size_t s_offset_, b_offset_, v_offset_, log_decay_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_RECURRENCE_H_
