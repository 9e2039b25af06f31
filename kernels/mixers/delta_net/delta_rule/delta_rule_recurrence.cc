// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"

namespace rivulet {

DeltaRuleRecurrence::DeltaRuleRecurrence(const DeltaRuleShape& shape, StateLayout& layout)
    : shape_(shape),
      sum_{shape.key_dim, shape.value_dim, shape.decays ? Decay::kScalar : Decay::kNone, false,
           shape.state_dtype} {
  const size_t d = shape.padded_key(), e = shape.padded_value(), heads = shape.value_heads;
  s_offset_ = layout.Add(StatePart::kBase, "S", shape.state_dtype, {heads, shape.key_dim, e});
  k_offset_ =
      layout.Add(StatePart::kTail, "k", DType::kFloat32, {shape.key_heads, kFoldInterval, d});
  u_offset_ = layout.Add(StatePart::kTail, "u", DType::kFloat32, {heads, kFoldInterval, e});
  if (!shape.decays) return;
  log_decay_offset_ =
      layout.Add(StatePart::kTail, "log_decay", DType::kFloat32, {heads, kFoldInterval});
}

SumBase DeltaRuleRecurrence::Base(const LayerState& state, uint32_t slot, size_t head) const {
  const size_t matrix = sum_.matrix_elements() * DTypeSize(sum_.dtype);
  return {state.Base<std::byte>(slot, s_offset_) + head * matrix, nullptr};
}

void DeltaRuleRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                              const DeltaRuleInput& input, FloatMatrix out,
                              ThreadPool& pool) const {
  ForEachHeadUnit(segments, shape_.key_heads, shape_.group() * sum_.matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, out); });
}

DeltaTail DeltaRuleRecurrence::Tail(const HeadPiece& piece, size_t head,
                                    const LayerState& state) const {
  const size_t d = sum_.padded_key(), e = sum_.padded_value();
  DeltaTail tail{
      .key = state.Tail<float>(piece.tail, k_offset_) + piece.head * kFoldInterval * d,
      .key_stride = d,
      .solved = state.Tail<float>(piece.tail, u_offset_) + head * kFoldInterval * e,
      .solved_stride = e,
  };
  if (!shape_.decays) return tail;
  tail.log_decay = state.Tail<float>(piece.tail, log_decay_offset_) + head * kFoldInterval;
  tail.decay_stride = 1;
  return tail;
}

void DeltaRuleRecurrence::AppendDecays(const HeadPiece& piece, size_t head, const LayerState& state,
                                       const DeltaRuleInput& input) const {
  if (!shape_.decays) return;
  float* c = state.Tail<float>(piece.tail, log_decay_offset_) + head * kFoldInterval;
  for (size_t r = 0; r < piece.rows(); ++r) {
    const size_t place = piece.begin + r;
    const float g = input.log_decay.row(piece.first_token + r)[head];
    c[place] = (place == 0 ? 0.0f : c[place - 1]) + g;
  }
}

void DeltaRuleRecurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                   const DeltaRuleInput& input, FloatMatrix out) const {
  const size_t d = sum_.padded_key();
  float* k = state.Tail<float>(piece.tail, k_offset_) + piece.head * kFoldInterval * d;
  AppendRows(piece.Of(input.k, piece.head * d, d), piece.begin, k);
  const size_t first = piece.head * shape_.group();
  DeltaScores scores;
  ScoreDelta(Tail(piece, first, state), piece.Of(input.q, piece.head * d, d), piece.begin, scores);
  for (size_t head = first; head < first + shape_.group(); ++head) {
    RunValueHead(piece, head, scores, state, input, out);
  }
}

// Append, read, and only then fold: a fold may write the base that the reads are from.
void DeltaRuleRecurrence::RunValueHead(const HeadPiece& piece, size_t head,
                                       const DeltaScores& scores, const LayerState& state,
                                       const DeltaRuleInput& input, FloatMatrix out) const {
  const size_t d = sum_.padded_key(), e = sum_.padded_value();
  AppendDecays(piece, head, state, input);
  const DeltaTail tail = Tail(piece, head, state);
  const SumBase from = Base(state, piece.from, head);
  const DeltaPiece rows{.queries = piece.Of(input.q, piece.head * d, d),
                        .values = piece.Of(input.v, head * e, e),
                        .beta = input.beta.row(piece.first_token) + head,
                        .beta_stride = input.beta.stride,
                        .begin = piece.begin};
  SolveDelta(sum_, from, tail, rows, scores, piece.Of(out, head * e, e));
  if (piece.folds) FoldSum(sum_, from, Base(state, piece.to, head), tail.Sum());
}

}  // namespace rivulet
