// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/linear_attention_recurrence.h"

namespace rivulet {
namespace {

// o [n, columns] /= denominator [n] + eps.
void Divide(FloatMatrix o, const float* denominator) {
  for (size_t r = 0; r < o.rows; ++r) {
    const float scale = 1.0f / (denominator[r] + LinearAttentionRecurrence::kDenominatorEps);
    for (size_t c = 0; c < o.columns; ++c) o.row(r)[c] *= scale;
  }
}

}  // namespace

LinearAttentionRecurrence::LinearAttentionRecurrence(const LinearAttentionShape& shape,
                                                     StateLayout& layout)
    : shape_(shape),
      sum_{shape.features, shape.value_dim, Decay::kNone, shape.normalised, shape.state_dtype} {
  const size_t heads = shape.kv_heads, r = shape.padded_features(), e = shape.padded_value();
  s_offset_ = layout.Add(StatePart::kBase, "S", shape.state_dtype, {heads, shape.features, e});
  if (shape.normalised) {
    z_offset_ = layout.Add(StatePart::kBase, "z", DType::kFloat32, {heads, r});
  }
  k_offset_ = layout.Add(StatePart::kTail, "k", DType::kFloat32, {heads, kFoldInterval, r});
  v_offset_ = layout.Add(StatePart::kTail, "v", DType::kFloat32, {heads, kFoldInterval, e});
}

SumBase LinearAttentionRecurrence::Base(const LayerState& state, uint32_t slot,
                                        size_t kv_head) const {
  const size_t matrix = sum_.matrix_elements() * DTypeSize(sum_.dtype);
  float* z = state.Base<float>(slot, z_offset_) + kv_head * sum_.padded_key();
  return {state.Base<std::byte>(slot, s_offset_) + kv_head * matrix, sum_.normaliser ? z : nullptr};
}

void LinearAttentionRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                                    const LinearAttentionInput& input, FloatMatrix out,
                                    ThreadPool& pool) const {
  ForEachHeadUnit(segments, shape_.kv_heads, shape_.group() * sum_.matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, out); });
}

// Append, read, and only then fold: a fold may write the base that the reads are from.
void LinearAttentionRecurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                         const LinearAttentionInput& input, FloatMatrix out) const {
  const size_t r = sum_.padded_key(), e = sum_.padded_value();
  float* k = state.Tail<float>(piece.tail, k_offset_) + piece.head * kFoldInterval * r;
  float* v = state.Tail<float>(piece.tail, v_offset_) + piece.head * kFoldInterval * e;
  AppendRows(piece.Of(input.k, piece.head * r, r), piece.begin, k);
  AppendRows(piece.Of(input.v, piece.head * e, e), piece.begin, v);

  const SumTail tail{.key = k, .key_stride = r, .value = v, .value_stride = e};
  const SumBase from = Base(state, piece.from, piece.head);
  const size_t first = piece.head * shape_.group();
  for (size_t head = first; head < first + shape_.group(); ++head) {
    float denominator[kFoldInterval];
    const FloatMatrix o = piece.Of(out, head * e, e);
    ReadSum(sum_, from, tail, {piece.Of(input.q, head * r, r), piece.begin}, o, denominator);
    if (shape_.normalised) Divide(o, denominator);
  }
  if (piece.folds) FoldSum(sum_, from, Base(state, piece.to, piece.head), tail);
}

}  // namespace rivulet
