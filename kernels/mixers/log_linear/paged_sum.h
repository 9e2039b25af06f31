// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The pages of a log-linear mixer's heads in a layer's state: planes, and the way from a piece of a
// head to the pages that kernels/recurrence/fenwick.h reads and folds.
//
// Threading: constant after construction; calls for different (session, head) pairs may run at
// once.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_PAGED_SUM_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_PAGED_SUM_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/head_units.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class PagedSum {
 public:
  // Adds the planes S (page) and page_log_decay (base), and sets the layout's kind of pages.
  PagedSum(const FenwickShape& shape, size_t heads, StateLayout& layout);

  const FenwickShape& shape() const { return shape_; }

  // out [n, padded E] = the piece's reads. Its rows must be in the tail.
  void Read(const HeadPiece& piece, const LayerState& state, const FenwickTail& tail,
            const FenwickQuery& query, FloatMatrix out) const;

  // Of a piece that folds, after its reads.
  void Fold(const HeadPiece& piece, const LayerState& state, const FenwickTail& tail) const;

 private:
  // The head's pages before fold `fold` of the segment, with the decays of base slot `slot`.
  FenwickPages Pages(const HeadPiece& piece, const LayerState& state, size_t fold,
                     uint32_t slot) const;

  FenwickShape shape_;
  size_t page_offset_, log_decay_offset_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_PAGED_SUM_H_
