// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/anna/anna_recurrence.h"

#include <algorithm>
#include <cstring>

namespace rivulet {

AnnaRecurrence::AnnaRecurrence(const AnnaShape& shape, StateLayout& layout)
    : shape_(shape), fold_interval_(layout.fold_interval()) {
  const BucketShape& head = shape.head;
  const size_t heads = shape.heads, e = head.padded_value();
  // Sums and counts that only grow: fp32 regardless of --state-dtype
  // (docs/architecture.md#bit-equality).
  sums_offset_ = layout.Add(StatePart::kBase, "bucket_sums", DType::kFloat32,
                            {heads, head.tables, head.buckets, e});
  counts_offset_ = layout.Add(StatePart::kBase, "bucket_counts", DType::kFloat32,
                              {heads, head.tables, head.buckets});
  keys_offset_ = layout.Add(StatePart::kTail, "key_buckets", DType::kFloat32,
                            {heads, head.tables, fold_interval_});
  v_offset_ = layout.Add(StatePart::kTail, "v", layout.row_dtype(), {heads, fold_interval_, e});
}

BucketTables AnnaRecurrence::Tables(const LayerState& state, uint32_t slot, size_t head) const {
  return {state.Base<float>(slot, sums_offset_) + head * shape_.head.sum_floats(),
          state.Base<float>(slot, counts_offset_) + head * shape_.head.count_floats()};
}

BucketTail AnnaRecurrence::Tail(const LayerState& state, uint32_t slot, size_t head) const {
  const size_t rows = head * fold_interval_;
  return {state.Tail<float>(slot, keys_offset_) + rows * shape_.head.tables,
          state.Tail<float>(slot, v_offset_) + rows * shape_.head.padded_value(), fold_interval_};
}

void AnnaRecurrence::Run(std::span<const Segment> segments, const LayerState& state,
                         const AnnaInput& input, FloatMatrix out, ThreadPool& pool) const {
  const size_t read = shape_.head.tables * shape_.head.padded_value();
  ForEachHeadUnit(segments, fold_interval_, shape_.heads, read, pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, out); });
}

void AnnaRecurrence::AppendPiece(const HeadPiece& piece, const AnnaInput& input,
                                 const BucketTail& tail) const {
  const size_t tables = shape_.head.tables, e = shape_.head.value_dim;
  const size_t padded = shape_.head.padded_value();
  for (size_t r = 0; r < piece.rows(); ++r) {
    const size_t token = piece.first_token + r, place = piece.begin + r;
    const float* keys = input.k_buckets.row(token) + piece.head * tables;
    for (size_t i = 0; i < tables; ++i) tail.keys[i * fold_interval_ + place] = keys[i];
    float* value = tail.values + place * padded;
    std::copy_n(input.v.row(token) + piece.head * e, e, value);
    std::fill_n(value + e, padded - e, 0.0f);
  }
}

// Append, read, and only then fold: a fold may write the base that the reads are from.
void AnnaRecurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                              const AnnaInput& input, FloatMatrix out) const {
  const BucketTail tail = Tail(state, piece.tail, piece.head);
  BucketTables from;
  if (piece.chunk != 0) from = Tables(state, piece.from, piece.head);
  AppendPiece(piece, input, tail);
  for (size_t r = 0; r < piece.rows(); ++r) {
    const size_t token = piece.first_token + r;
    ReadBuckets(shape_.head, from, tail,
                input.q_buckets.row(token) + piece.head * shape_.head.tables,
                piece.begin + r + (shape_.include_self ? 1 : 0),
                out.row(token) + piece.head * shape_.head.padded_value());
  }
  if (piece.folds) Fold(from, Tables(state, piece.to, piece.head), tail);
}

void AnnaRecurrence::Fold(const BucketTables& from, const BucketTables& to,
                          const BucketTail& tail) const {
  if (from.sums == nullptr) {
    std::fill_n(to.sums, shape_.head.sum_floats(), 0.0f);
    std::fill_n(to.counts, shape_.head.count_floats(), 0.0f);
  } else if (from.sums != to.sums) {
    std::memcpy(to.sums, from.sums, shape_.head.sum_floats() * sizeof(float));
    std::memcpy(to.counts, from.counts, shape_.head.count_floats() * sizeof(float));
  }
  FoldBuckets(shape_.head, to, tail);
}

}  // namespace rivulet
