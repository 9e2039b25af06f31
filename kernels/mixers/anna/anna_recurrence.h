// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// ANNA's recurrence (arXiv 2509.09001; docs/mixers.md#anna), given the buckets of queries and keys:
//
//   o_t = Σ_s M_ts v_s / Σ_s M_ts        s <= t, or s < t when strict; 0 where no key collides
//
// with M_ts the number of tables in which query t and key s share a bucket. The base holds
// the tables as they were at the chunk's border, the tail the rows since.
//
// A fold in place touches the at most C·ℓ buckets of its rows. A fold into another slot copies the
// tables first: once for each segment, since later folds of the segment are in place.
//
// Letters: T tokens, H heads, ℓ tables a head, B buckets a table, E value width, Ep padded.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_RECURRENCE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/anna/anna_buckets.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct DeviceStep;

struct AnnaShape {
  size_t heads = 0;  // H
  BucketShape head;  // of each
  // Whether a token's query sees its own key. If not, it reads before the token is inserted.
  bool include_self = true;
};

// Heads side by side without padding. Buckets are whole numbers in [0, B).
struct AnnaInput {
  ConstFloatMatrix q_buckets, k_buckets;  // [T, H*ℓ]
  ConstFloatMatrix v;                     // [T, H*E]
};

class AnnaRecurrence {
 public:
  // Adds its planes to `layout` (README.md).
  AnnaRecurrence(const AnnaShape& shape, StateLayout& layout);

  const AnnaShape& shape() const { return shape_; }

  // out [T, H*Ep]; advances the segments' slots.
  void Run(std::span<const Segment> segments, const LayerState& state, const AnnaInput& input,
           FloatMatrix out, ThreadPool& pool) const;

  // The same on a device. REQUIRES: RunsOnDevice().
  void Enqueue(const DeviceStep& step, const AnnaInput& input, FloatMatrix out) const;
  bool RunsOnDevice() const;

 private:
  void RunPiece(const HeadPiece& piece, const LayerState& state, const AnnaInput& input,
                FloatMatrix out) const;
  void AppendPiece(const HeadPiece& piece, const AnnaInput& input, const BucketTail& tail) const;
  void Fold(const BucketTables& from, const BucketTables& to, const BucketTail& tail) const;
  BucketTables Tables(const LayerState& state, uint32_t slot, size_t head) const;
  BucketTail Tail(const LayerState& state, uint32_t slot, size_t head) const;

  AnnaShape shape_;
  size_t fold_interval_;  // C
  size_t sums_offset_, counts_offset_, keys_offset_, v_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_RECURRENCE_H_
