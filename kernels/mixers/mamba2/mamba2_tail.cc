// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_tail.h"

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

Mamba2Tail::Mamba2Tail(const Mamba2Shape& shape, Mamba2Constants constants, StateLayout& layout)
    : shape_(shape), constants_(std::move(constants)) {
  const size_t n = shape.padded_state(), p = shape.padded_head();
  b_offset_ = layout.Add(StatePart::kTail, "B", DType::kFloat32, {shape.groups, kFoldInterval, n});
  v_offset_ = layout.Add(StatePart::kTail, "v", DType::kFloat32, {shape.heads, kFoldInterval, p});
  log_decay_offset_ =
      layout.Add(StatePart::kTail, "log_decay", DType::kFloat32, {shape.heads, kFoldInterval});
}

void Mamba2Tail::KeepBeforeReads(std::span<const Segment> segments, const LayerState& state,
                                 const Mamba2Input& input) const {
  for (const Segment& segment : segments) {
    ForEachChunkPiece(segment, kFoldInterval, [&](const ChunkPiece& piece) {
      if (piece.begin != 0) KeepKeys(piece, segment, state, input);
    });
  }
}

void Mamba2Tail::KeepAfterReads(std::span<const Segment> segments, const LayerState& state,
                                const Mamba2Input& input) const {
  for (const Segment& segment : segments) {
    ForEachChunkPiece(segment, kFoldInterval, [&](const ChunkPiece& piece) {
      if (piece.begin == 0 && !piece.folds) KeepKeys(piece, segment, state, input);
    });
  }
}

void Mamba2Tail::KeepKeys(const ChunkPiece& piece, const Segment& segment, const LayerState& state,
                          const Mamba2Input& input) const {
  const size_t n = shape_.padded_state();
  float* b = state.Tail<float>(segment.tail, b_offset_);
  for (size_t g = 0; g < shape_.groups; ++g) {
    AppendRows(input.b.Rows(piece.first_token, piece.end - piece.begin).Columns(g * n, n),
               piece.begin, b + g * kFoldInterval * n);
  }
}

SumTail Mamba2Tail::Append(const HeadPiece& piece, const LayerState& state,
                           const Mamba2Input& input) const {
  const size_t n = shape_.padded_state(), p = shape_.padded_head();
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

void Mamba2Tail::AddSkip(const HeadPiece& piece, const Mamba2Input& input, FloatMatrix out) const {
  const float* d = constants_.d.data() + piece.head * shape_.head_dim;
  const ConstFloatMatrix x = piece.Of(input.x, piece.head * shape_.head_dim, shape_.head_dim);
  for (size_t r = 0; r < piece.rows(); ++r) {
    for (size_t i = 0; i < shape_.head_dim; ++i) out.row(r)[i] += d[i] * x.row(r)[i];
  }
}

}  // namespace rivulet
