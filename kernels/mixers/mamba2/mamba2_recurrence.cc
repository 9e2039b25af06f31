// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_recurrence.h"

#include <utility>

namespace rivulet {

Mamba2Recurrence::Mamba2Recurrence(const Mamba2Shape& shape, Mamba2Constants constants,
                                   StateLayout& layout)
    : tail_(shape, std::move(constants), layout),
      sum_{shape.state_size, shape.head_dim, Decay::kScalar, false, shape.state_dtype},
      s_offset_(layout.Add(StatePart::kBase, "S", shape.state_dtype,
                           {shape.heads, shape.state_size, shape.padded_head()})) {}

SumBase Mamba2Recurrence::Base(const LayerState& state, uint32_t slot, size_t head) const {
  const size_t matrix = sum_.matrix_elements() * DTypeSize(sum_.dtype);
  return {state.Base<std::byte>(slot, s_offset_) + head * matrix, nullptr};
}

void Mamba2Recurrence::Run(std::span<const Segment> segments, const LayerState& state,
                           const Mamba2Input& input, FloatMatrix y, ThreadPool& pool) const {
  tail_.KeepBeforeReads(segments, state, input);
  ForEachHeadUnit(segments, shape().heads, sum_.matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, y); });
  tail_.KeepAfterReads(segments, state, input);
}

// Append, read, and only then fold: a fold may write the base that the reads are from.
void Mamba2Recurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                const Mamba2Input& input, FloatMatrix y) const {
  const size_t p = sum_.padded_value();
  const SumTail tail = tail_.Append(piece, state, input);
  const SumBase from = Base(state, piece.from, piece.head);
  const FloatMatrix out = piece.Of(y, piece.head * p, p);
  ReadSum(sum_, from, tail, {tail_.Queries(piece, input), piece.begin}, out, nullptr);
  tail_.AddSkip(piece, input, out);
  if (piece.folds) FoldSum(sum_, from, Base(state, piece.to, piece.head), tail);
}

}  // namespace rivulet
