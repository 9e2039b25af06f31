// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/retnet/retnet_recurrence.h"

#include <cmath>

namespace rivulet {

double RetentionLogDecay(size_t head) {
  const float gamma = 1.0f - std::exp2(-5.0f - static_cast<float>(head));
  return std::log(static_cast<double>(gamma));
}

RetNetRecurrence::RetNetRecurrence(const RetNetShape& shape, StateLayout& layout)
    : shape_(shape),
      sum_{shape.key_dim, shape.value_dim, Decay::kScalar, false, shape.state_dtype},
      log_decay_(shape.heads * kFoldInterval) {
  const size_t d = shape.padded_key(), e = shape.padded_value();
  s_offset_ = layout.Add(StatePart::kBase, "S", shape.state_dtype, {shape.heads, shape.key_dim, e});
  k_offset_ =
      layout.Add(StatePart::kTail, "k", DType::kFloat32, {shape.kv_heads, kFoldInterval, d});
  v_offset_ =
      layout.Add(StatePart::kTail, "v", DType::kFloat32, {shape.kv_heads, kFoldInterval, e});
  for (size_t i = 0; i < log_decay_.size(); ++i) {
    const double tokens = static_cast<double>(i % kFoldInterval + 1);
    log_decay_[i] = static_cast<float>(tokens * RetentionLogDecay(i / kFoldInterval));
  }
}

SumBase RetNetRecurrence::Base(const LayerState& state, uint32_t slot, size_t head) const {
  const size_t matrix = sum_.matrix_elements() * DTypeSize(sum_.dtype);
  return {state.Base<std::byte>(slot, s_offset_) + head * matrix, nullptr};
}

void RetNetRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                           const RetNetInput& input, FloatMatrix out, ThreadPool& pool) const {
  ForEachHeadUnit(segments, shape_.kv_heads, shape_.group() * sum_.matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, out); });
}

// The rows that the heads of the group share, without their decay.
SumTail RetNetRecurrence::AppendPiece(const HeadPiece& piece, const LayerState& state,
                                      const RetNetInput& input) const {
  const size_t d = sum_.padded_key(), e = sum_.padded_value();
  float* k = state.Tail<float>(piece.tail, k_offset_) + piece.head * kFoldInterval * d;
  float* v = state.Tail<float>(piece.tail, v_offset_) + piece.head * kFoldInterval * e;
  AppendRows(piece.Of(input.k, piece.head * d, d), piece.begin, k);
  AppendRows(piece.Of(input.v, piece.head * e, e), piece.begin, v);
  return {.key = k, .key_stride = d, .value = v, .value_stride = e, .decay_stride = 1};
}

// Append, read, and only then fold: a fold may write the base that the reads are from.
void RetNetRecurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                const RetNetInput& input, FloatMatrix out) const {
  const size_t d = sum_.padded_key(), e = sum_.padded_value();
  SumTail tail = AppendPiece(piece, state, input);
  const size_t first = piece.head * shape_.group();
  for (size_t head = first; head < first + shape_.group(); ++head) {
    const SumBase from = Base(state, piece.from, head);
    tail.log_decay = log_decay_.data() + head * kFoldInterval;
    ReadSum(sum_, from, tail, {piece.Of(input.q, head * d, d), piece.begin},
            piece.Of(out, head * e, e), nullptr);
    if (piece.folds) FoldSum(sum_, from, Base(state, piece.to, head), tail);
  }
}

}  // namespace rivulet
