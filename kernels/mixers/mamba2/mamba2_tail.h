// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The tail of Mamba-2's recurrence, whatever its sum rests in (mamba2_recurrence.h, and the pages
// of kernels/mixers/log_linear_mamba2): rows B_t for keys, Δ_t x_t for values and the cumulative
// A Δ_t, and the skip D ∘ x_t beside the sum.
//
// Letters: T tokens, H heads, G groups, N state size (the key width), P head width (the value
// width); Np and Pp padded. Head h reads B and C of group h / (H/G); the tail keeps B once a group.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_TAIL_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_TAIL_H_

#include <cstddef>
#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/head_units.h"
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

class Mamba2Tail {
 public:
  // Adds the planes B, v and log_decay to `layout`.
  Mamba2Tail(const Mamba2Shape& shape, Mamba2Constants constants, StateLayout& layout);

  const Mamba2Shape& shape() const { return shape_; }
  const Mamba2Constants& constants() const { return constants_; }

  // The heads of a group share B, and so no head may write it while others read. A piece that
  // starts a chunk therefore reads B from the step's input, where all of its rows are; only a piece
  // that goes on with an older chunk reads the tail. Call these two around the heads' reads: the
  // first keeps the rows of such a piece, the second those of a chunk that this step starts and
  // does not finish.
  void KeepBeforeReads(std::span<const Segment> segments, const LayerState& state,
                       const Mamba2Input& input) const;
  void KeepAfterReads(std::span<const Segment> segments, const LayerState& state,
                      const Mamba2Input& input) const;

  // Appends a head's own rows of the piece. The answer holds until the piece's reads and fold are
  // done.
  SumTail Append(const HeadPiece& piece, const LayerState& state, const Mamba2Input& input) const;

  // The piece's queries C of its head.
  ConstFloatMatrix Queries(const HeadPiece& piece, const Mamba2Input& input) const {
    const size_t n = shape_.padded_state();
    return piece.Of(input.c, shape_.group_of(piece.head) * n, n);
  }

  // out [n, >= P] += D ∘ x.
  void AddSkip(const HeadPiece& piece, const Mamba2Input& input, FloatMatrix out) const;

 private:
  void KeepKeys(const ChunkPiece& piece, const Segment& segment, const LayerState& state,
                const Mamba2Input& input) const;

  Mamba2Shape shape_;
  Mamba2Constants constants_;
  size_t b_offset_, v_offset_, log_decay_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_TAIL_H_
