// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba's selective state space (Gu and Dao 2023; docs/mixers.md#mamba):
//
//   h_t = e^{Δ_t A} ∘ h_{t-1} + (Δ_t x_t) ⊗ B_t        y_t = (h_t C_t + D ∘ x_t) ∘ silu(z_t)
//
// A differs for each channel and state, so this is not a decayed sum of outer products; nothing is
// gained by keeping rows and folding later. The state is kept as if C were 1: the *tail* holds h
// after the last token, the *base* holds h at the last chunk border. A chunk's first token
// goes on from the base, its others from the tail, and its last one leaves the next
// base. So a shared base is never written, and forks, snapshots and cuts work as they
// do for every other mixer.
//
// A layout that forgets (StateLayout::forgets) also has rows: x, dt and B of tokens that may turn
// out wrong (Segment::guesses). They do not change h in the tail; the next segment first makes the
// states of those that were right again, with the same operations.
//
// Letters: T tokens, I channels, N state size. All states are fp32: a state is read and written
// every token, and bf16 in the base would round it in one token of 16 alone.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_RECURRENCE_H_

#include <cstddef>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_step.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct MambaScan;

struct MambaShape {
  size_t channels = 0;    // I
  size_t state_size = 0;  // N
};

// The trained constants of the recurrence.
struct MambaConstants {
  AlignedBuffer<float> a;  // [I, N], -exp(A_log) < 0
  AlignedBuffer<float> d;  // [I], the skip
};

// x, dt, z [T, I] and b, c [T, N], all fp32. Δ = softplus(dt).
struct MambaInput {
  ConstFloatMatrix x, dt, z, b, c;
};

class MambaRecurrence {
 public:
  // Adds its planes to `layout` (README.md). Copies what it needs of `constants`.
  MambaRecurrence(const MambaShape& shape, const MambaConstants& constants, StateLayout& layout);

  const MambaShape& shape() const { return shape_; }

  // y [T, I]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const MambaInput& input,
           FloatMatrix y, ThreadPool& pool) const;

  // The same on the device whose layout it was made with: y [T, I] as the input of a product.
  // REQUIRES: RunsOnDevice().
  void Enqueue(const DeviceStep& step, const MambaInput& input, const Operand& y) const;
  bool RunsOnDevice() const;

 private:
  void Pack(const MambaConstants& constants, StateLayout& layout);
  void PackForDevice(const MambaConstants& constants, StateLayout& layout);
  size_t blocks() const { return (shape_.channels + kBlock - 1) / kBlock; }
  void AddRows(StateLayout& layout);
  void KeepRowsOfB(std::span<const Segment> segments, const LayerState& state,
                   const MambaInput& input) const;
  void RunBlock(size_t block, const HeadPiece& piece, const LayerState& state,
                const MambaInput& input, FloatMatrix y) const;

  void FindRows(size_t block, const HeadPiece& piece, const LayerState& state,
                MambaScan& scan) const;

  MambaShape shape_;
  size_t fold_interval_;       // C
  size_t blocks_a_unit_;       // channels that one task takes, in blocks
  AlignedBuffer<float> a_;     // [blocks, N, kBlock]; on a device [Ip, Np]
  AlignedBuffer<float> skip_;  // [blocks, kBlock]
  size_t base_offset_, tail_offset_;
  // Of a layout that forgets: rows [blocks, 2, C, kBlock] of x and dt, [C, N] of B, and for each
  // block how many of the chunk's tokens h in the tail holds.
  bool forgets_ = false;
  size_t rows_offset_ = 0, b_offset_ = 0, done_offset_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_RECURRENCE_H_
