// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_recurrence.h"

#include "kernels/base/check.h"

namespace rivulet {

LogLinearGatedDeltaNetRecurrence::LogLinearGatedDeltaNetRecurrence(const DeltaRuleShape& shape,
                                                                   uint32_t levels,
                                                                   StateLayout& layout)
    : shape_(shape),
      sum_({shape.key_dim, shape.value_dim, levels, true, shape.state_dtype}, shape.value_heads,
           layout) {
  RIVULET_CHECK(shape.decays && shape.group() == 1, "a log-linear rule decays, head by head");
  const size_t heads = shape.value_heads;
  const auto add = [&](const char* name, size_t columns) {
    return layout.Add(StatePart::kTail, name, DType::kFloat32, {heads, kFoldInterval, columns});
  };
  k_offset_ = add("k", shape.padded_key());
  v_offset_ = add("v", shape.padded_value());
  beta_offset_ = add("beta", 1);
  log_decay_offset_ = add("log_decay", 1);
  overlap_offset_ = add("overlap", kFoldInterval);
}

// A token reads about half of its session's pages; their number is not known here.
void LogLinearGatedDeltaNetRecurrence::Run(std::span<const Segment> segments,
                                           const LayerState& state,
                                           const LogLinearGatedDeltaNetInput& input,
                                           FloatMatrix out, ThreadPool& pool) const {
  ForEachHeadUnit(segments, shape_.value_heads, 2 * sum_.shape().matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, out); });
}

FenwickTail LogLinearGatedDeltaNetRecurrence::Append(const HeadPiece& piece,
                                                     const LayerState& state,
                                                     const DeltaRuleInput& input) const {
  const size_t d = shape_.padded_key(), e = shape_.padded_value();
  const auto plane = [&](size_t offset, size_t columns) {
    return state.Tail<float>(piece.tail, offset) + piece.head * kFoldInterval * columns;
  };
  float* k = plane(k_offset_, d);
  float* v = plane(v_offset_, e);
  float* beta = plane(beta_offset_, 1);
  float* c = plane(log_decay_offset_, 1);
  AppendRows(piece.Of(input.k, piece.head * d, d), piece.begin, k);
  AppendRows(piece.Of(input.v, piece.head * e, e), piece.begin, v);
  for (size_t r = 0; r < piece.rows(); ++r) {
    const size_t place = piece.begin + r, token = piece.first_token + r;
    beta[place] = input.beta.row(token)[piece.head];
    c[place] = (place == 0 ? 0.0f : c[place - 1]) + input.log_decay.row(token)[piece.head];
  }
  const FenwickTail tail{.key = k,
                         .key_stride = d,
                         .value = v,
                         .value_stride = e,
                         .log_decay = c,
                         .beta = beta,
                         .overlap = plane(overlap_offset_, kFoldInterval)};
  AppendOverlap(sum_.shape(), tail, piece.begin, piece.rows());
  return tail;
}

// Append, read, and only then fold: a fold may write the pages that the reads are from.
void LogLinearGatedDeltaNetRecurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                                const LogLinearGatedDeltaNetInput& input,
                                                FloatMatrix out) const {
  const size_t d = shape_.padded_key(), e = shape_.padded_value();
  const FenwickTail tail = Append(piece, state, input.rule);
  sum_.Read(piece, state, tail,
            {piece.Of(input.rule.q, piece.head * d, d),
             piece.Of(input.weights, piece.head * levels(), levels()), piece.begin},
            piece.Of(out, piece.head * e, e));
  if (piece.folds) sum_.Fold(piece, state, tail);
}

}  // namespace rivulet
