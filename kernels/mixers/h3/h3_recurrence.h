// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// H3's two state space models (Fu et al. 2022; docs/mixers.md#h3), h a head, i and j its rows:
//
//   k̄_t[i] = Σ_{l<N} taps[i, l] k_{t-l}[i]             the shift SSM, a filter of length N
//   x_t[i, j] = pole ∘ x_{t-1}[i, j] + k̄_t[i] v_t[j]   the diagonal SSM, M complex modes
//   o_t[j] = Σ_i q_t[i] (Re Σ_n weight_n x_t,n[i, j] + D k̄_t[i] v_t[j])
//
// The keys are kept as a convolution keeps its inputs: those before the chunk in the base (a
// ring by position, so that a fold writes a chunk of them and moves none), each token's in the
// tail. The modes are kept as if C were 1, since nothing is gained by folding what differs for each
// of them: the *tail* holds x after the last token, the *base* x at the last chunk border. A
// chunk's first token goes on from the base, its others from the tail, and its last one
// leaves the next base.
//
// Letters: T tokens, Hs heads, hd head width, N window, M modes; Hp is Hs rounded up to kBlock. All
// states are fp32.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/device/device_step.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct H3Shape {
  size_t heads = 0;     // Hs
  size_t head_dim = 0;  // hd
  size_t window = 0;    // N
  size_t modes = 0;     // M

  size_t padded_heads() const { return PaddedColumns(heads); }
  // Columns of q, k, v and o: row i of head h is column i·Hp + h.
  size_t columns() const { return head_dim * padded_heads(); }
};

// The trained SSMs: the taps of the shift SSM, poles and weights of the diagonal one. D = Hs · hd
// channels.
struct H3Constants {
  // [D, N] for channel h·hd + i: κ[c, l] = Σ_n B[c, n] C[c, n + l], and κ[c, 0] with the skip
  // ssm_k_D added.
  AlignedBuffer<float> taps;
  // [Hs, M]: the pole dA, and 2 · C · dB, so that a head's kernel is K[l] = Re Σ_n weight_n
  // pole_n^l.
  AlignedBuffer<float> pole_real, pole_imaginary, weight_real, weight_imaginary;
  AlignedBuffer<float> skip;  // [Hs]: D
};

// Each [T, hd·Hp] fp32, zeros in the padding of each row of heads.
struct H3Input {
  ConstFloatMatrix q, k, v;
};

struct H3Scan;

class H3Recurrence {
 public:
  // Adds its planes to `layout` (README.md). Copies what it needs of `constants`.
  H3Recurrence(const H3Shape& shape, const H3Constants& constants, StateLayout& layout);

  const H3Shape& shape() const { return shape_; }

  // o [T, hd·Hp]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const H3Input& input,
           FloatMatrix o, ThreadPool& pool) const;

  // The same on the device whose layout it was made with. q, k and v are [T, D], row i of head h in
  // column h·hd + i; o [T, D] is the input of a product, row j of head h in column j·Hs + h.
  void Enqueue(const DeviceStep& step, const H3Input& input, const Operand& o) const;
  bool RunsOnDevice() const;

 private:
  void AddPlanes(StateLayout& layout);
  void PackForDevice(const H3Constants& constants, StateLayout& layout);
  FloatMatrix EnqueueFilter(const DeviceStep& step, ConstFloatMatrix k) const;
  void Pack(const H3Constants& constants);
  void RunPiece(const HeadPiece& piece, const LayerState& state, const H3Input& input,
                FloatMatrix o) const;
  void FindRows(const HeadPiece& piece, const LayerState& state, H3Scan& scan) const;
  void FoldKeys(const HeadPiece& piece, const LayerState& state, size_t ring_next) const;
  float* Ring(const LayerState& state, uint32_t slot, size_t block) const;

  H3Shape shape_;
  size_t fold_interval_;  // C
  size_t ring_rows_;      // whole chunks, so that a chunk's keys lie side by side
  // On a device taps_ is [N, Dp] and modal_ two times [Hs, Mp, 2], all poles and all weights, where
  // Dp and Mp are padded.
  AlignedBuffer<float> taps_;   // [Hp/16, hd, N, kBlock]
  AlignedBuffer<float> modal_;  // [Hp/16, M, 4, kBlock]: pole re, im, weight re, im
  AlignedBuffer<float> skip_;   // [Hp]
  size_t ring_offset_, keys_offset_, modes_offset_, modes_now_offset_;
  // Of a layout that forgets (as in mamba_recurrence.h): rows of k̄ and v, [blocks, 2, hd, C,
  // kBlock], and for each block how many of the chunk's tokens the modes in the tail hold.
  bool forgets_ = false;
  size_t rows_offset_ = 0, done_offset_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_RECURRENCE_H_
