// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_recurrence.h"

#include <utility>

namespace rivulet {

LogLinearMamba2Recurrence::LogLinearMamba2Recurrence(const Mamba2Shape& shape, uint32_t levels,
                                                     Mamba2Constants constants, StateLayout& layout)
    : tail_(shape, std::move(constants), layout),
      sum_({shape.state_size, shape.head_dim, levels, false, shape.state_dtype}, shape.heads,
           layout) {}

// A token reads about half of its session's pages; their number is not known here.
void LogLinearMamba2Recurrence::Run(std::span<const Segment> segments, const LayerState& state,
                                    const LogLinearMamba2Input& input, FloatMatrix y,
                                    ThreadPool& pool) const {
  tail_.KeepBeforeReads(segments, state, input.mamba2);
  ForEachHeadUnit(segments, shape().heads, 2 * sum_.shape().matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, y); });
  tail_.KeepAfterReads(segments, state, input.mamba2);
}

// Append, read, and only then fold: a fold may write over the decays that the reads are with.
void LogLinearMamba2Recurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                         const LogLinearMamba2Input& input, FloatMatrix y) const {
  const size_t p = shape().padded_head();
  const SumTail rows = tail_.Append(piece, state, input.mamba2);
  const FenwickTail tail{.key = rows.key,
                         .key_stride = rows.key_stride,
                         .value = rows.value,
                         .value_stride = rows.value_stride,
                         .log_decay = rows.log_decay};
  const FloatMatrix out = piece.Of(y, piece.head * p, p);
  sum_.Read(piece, state, tail,
            {tail_.Queries(piece, input.mamba2),
             piece.Of(input.weights, piece.head * levels(), levels()), piece.begin},
            out);
  tail_.AddSkip(piece, input.mamba2, out);
  if (piece.folds) sum_.Fold(piece, state, tail);
}

}  // namespace rivulet
