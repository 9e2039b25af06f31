// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_recurrence.h"

#include <algorithm>
#include <utility>

namespace rivulet {
namespace {

// to [columns] = scale · from [count], zeros behind it.
void ScaleRow(float scale, const float* from, size_t count, float* to, size_t columns) {
  for (size_t i = 0; i < count; ++i) to[i] = scale * from[i];
  std::fill(to + count, to + columns, 0.0f);
}

}  // namespace

Mamba2Recurrence::Mamba2Recurrence(const Mamba2Shape& shape, Mamba2Constants constants,
                                   StateLayout& layout)
    : shape_(shape),
      constants_(std::move(constants)),
      sum_{shape.state_size, shape.head_dim, Decay::kScalar, false, shape.state_dtype} {
  const size_t n = shape.padded_state(), p = shape.padded_head();
  s_offset_ = layout.Add(StatePart::kCheckpoint, "S", shape.state_dtype,
                         {shape.heads, shape.state_size, p});
  b_offset_ = layout.Add(StatePart::kTail, "B", DType::kFloat32, {shape.groups, kFoldInterval, n});
  v_offset_ = layout.Add(StatePart::kTail, "v", DType::kFloat32, {shape.heads, kFoldInterval, p});
  log_decay_offset_ =
      layout.Add(StatePart::kTail, "log_decay", DType::kFloat32, {shape.heads, kFoldInterval});
}

SumCheckpoint Mamba2Recurrence::Checkpoint(const LayerState& state, uint32_t slot,
                                           size_t head) const {
  const size_t matrix = sum_.matrix_elements() * DTypeSize(sum_.dtype);
  return {state.Checkpoint<std::byte>(slot, s_offset_) + head * matrix, nullptr};
}

void Mamba2Recurrence::Run(std::span<const Segment> segments, const LayerState& state,
                           const Mamba2Input& input, FloatMatrix y, ThreadPool& pool) const {
  KeepKeys(segments, state, input, Keep::kBeforeReads);
  ForEachHeadUnit(segments, shape_.heads, sum_.matrix_elements(), pool,
                  [&](const HeadPiece& piece) { RunPiece(piece, state, input, y); });
  KeepKeys(segments, state, input, Keep::kAfterReads);
}

// The heads of a group share B, and so no head may write it while others read. A piece that starts
// a chunk therefore reads B from the step's input, where all of its rows are; only a piece that
// goes on with an older chunk reads the tail. Kept before the reads: the rows of such a piece. Kept
// after them: the rows of a chunk that this step starts and does not finish.
void Mamba2Recurrence::KeepKeys(std::span<const Segment> segments, const LayerState& state,
                                const Mamba2Input& input, Keep keep) const {
  const size_t n = sum_.padded_key();
  for (const Segment& segment : segments) {
    ForEachChunkPiece(segment, [&](const ChunkPiece& piece) {
      const bool kept =
          keep == Keep::kBeforeReads ? piece.begin != 0 : piece.begin == 0 && !piece.folds;
      if (!kept) return;
      float* b = state.Tail<float>(segment.tail, b_offset_);
      for (size_t g = 0; g < shape_.groups; ++g) {
        AppendRows(input.b.Rows(piece.first_token, piece.end - piece.begin).Columns(g * n, n),
                   piece.begin, b + g * kFoldInterval * n);
      }
    });
  }
}

SumTail Mamba2Recurrence::AppendPiece(const HeadPiece& piece, const LayerState& state,
                                      const Mamba2Input& input) const {
  const size_t n = sum_.padded_key(), p = sum_.padded_value();
  float* v = state.Tail<float>(piece.tail, v_offset_) + piece.head * kFoldInterval * p;
  float* c = state.Tail<float>(piece.tail, log_decay_offset_) + piece.head * kFoldInterval;
  for (size_t r = 0; r < piece.rows(); ++r) {
    const size_t place = piece.begin + r;
    const float delta = input.delta.row(piece.first_token + r)[piece.head];
    const float* x = input.x.row(piece.first_token + r) + piece.head * shape_.head_dim;
    ScaleRow(delta, x, shape_.head_dim, v + place * p, p);
    c[place] = (place == 0 ? 0.0f : c[place - 1]) + constants_.a[piece.head] * delta;
  }
  SumTail tail{.value = v, .value_stride = p, .log_decay = c, .decay_stride = 1};
  const size_t group = shape_.group_of(piece.head);
  if (piece.begin == 0) {
    tail.key = input.b.row(piece.first_token) + group * n;
    tail.key_stride = input.b.stride;
  } else {
    tail.key = state.Tail<float>(piece.tail, b_offset_) + group * kFoldInterval * n;
    tail.key_stride = n;
  }
  return tail;
}

// Append, read, and only then fold: a fold may write the checkpoint that the reads are from.
void Mamba2Recurrence::RunPiece(const HeadPiece& piece, const LayerState& state,
                                const Mamba2Input& input, FloatMatrix y) const {
  const size_t n = sum_.padded_key(), p = sum_.padded_value();
  const SumTail tail = AppendPiece(piece, state, input);
  const SumCheckpoint from = Checkpoint(state, piece.from, piece.head);
  const ConstFloatMatrix c = piece.Of(input.c, shape_.group_of(piece.head) * n, n);
  const FloatMatrix out = piece.Of(y, piece.head * p, p);
  ReadSum(sum_, from, tail, {c, piece.begin}, out, nullptr);

  const float* d = constants_.d.data() + piece.head * shape_.head_dim;
  const ConstFloatMatrix x = piece.Of(input.x, piece.head * shape_.head_dim, shape_.head_dim);
  for (size_t r = 0; r < piece.rows(); ++r) {
    for (size_t i = 0; i < shape_.head_dim; ++i) out.row(r)[i] += d[i] * x.row(r)[i];
  }
  if (piece.folds) FoldSum(sum_, from, Checkpoint(state, piece.to, piece.head), tail);
}

}  // namespace rivulet
