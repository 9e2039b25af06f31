// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gla/gla_recurrence.h"

namespace rivulet {
namespace {

// Row s of `cumulative` [C, columns] = row s - 1 plus g's row, from zero at the chunk's border.
void AppendCumulative(ConstFloatMatrix g, size_t begin, float* cumulative) {
  for (size_t r = 0; r < g.rows; ++r) {
    float* c = cumulative + (begin + r) * g.columns;
    for (size_t i = 0; i < g.columns; ++i) {
      c[i] = begin + r == 0 ? g.row(r)[i] : (c - g.columns)[i] + g.row(r)[i];
    }
  }
}

}  // namespace

GlaRecurrence::GlaRecurrence(const GlaShape& shape, StateLayout& layout)
    : shape_(shape),
      sum_{shape.key_dim, shape.value_dim, Decay::kChannel, false, shape.state_dtype} {
  const size_t heads = shape.kv_heads, d = shape.padded_key(), e = shape.padded_value();
  s_offset_ = layout.Add(StatePart::kBase, "S", shape.state_dtype, {heads, shape.key_dim, e});
  k_offset_ = layout.Add(StatePart::kTail, "k", DType::kFloat32, {heads, kFoldInterval, d});
  v_offset_ = layout.Add(StatePart::kTail, "v", DType::kFloat32, {heads, kFoldInterval, e});
  log_decay_offset_ =
      layout.Add(StatePart::kTail, "log_decay", DType::kFloat32, {heads, kFoldInterval, d});
}

SumBase GlaRecurrence::Base(const LayerState& state, uint32_t slot, size_t kv_head) const {
  const size_t matrix = sum_.matrix_elements() * DTypeSize(sum_.dtype);
  return {state.Base<std::byte>(slot, s_offset_) + kv_head * matrix, nullptr};
}

void GlaRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                        const GlaInput& input, FloatMatrix out, ThreadPool& pool) const {
  ForEachHeadUnit(segments, shape_.kv_heads, shape_.group() * sum_.matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, out); });
}

SumTail GlaRecurrence::AppendPiece(const HeadPiece& piece, const LayerState& state,
                                   const GlaInput& input) const {
  const size_t d = sum_.padded_key(), e = sum_.padded_value();
  const size_t key_rows = piece.head * kFoldInterval * d;
  float* k = state.Tail<float>(piece.tail, k_offset_) + key_rows;
  float* v = state.Tail<float>(piece.tail, v_offset_) + piece.head * kFoldInterval * e;
  float* c = state.Tail<float>(piece.tail, log_decay_offset_) + key_rows;
  AppendRows(piece.Of(input.k, piece.head * d, d), piece.begin, k);
  AppendRows(piece.Of(input.v, piece.head * e, e), piece.begin, v);
  AppendCumulative(piece.Of(input.log_decay, piece.head * d, d), piece.begin, c);
  return {
      .key = k, .key_stride = d, .value = v, .value_stride = e, .log_decay = c, .decay_stride = d};
}

// Append, read, and only then fold: a fold may write the base that the reads are from.
void GlaRecurrence::RunPiece(const HeadPiece& piece, const LayerState& state, const GlaInput& input,
                             FloatMatrix out) const {
  const size_t d = sum_.padded_key(), e = sum_.padded_value();
  const SumTail tail = AppendPiece(piece, state, input);
  const SumBase from = Base(state, piece.from, piece.head);
  const size_t first = piece.head * shape_.group();
  for (size_t head = first; head < first + shape_.group(); ++head) {
    ReadSum(sum_, from, tail, {piece.Of(input.q, head * d, d), piece.begin},
            piece.Of(out, head * e, e), nullptr);
  }
  if (piece.folds) FoldSum(sum_, from, Base(state, piece.to, piece.head), tail);
}

}  // namespace rivulet
