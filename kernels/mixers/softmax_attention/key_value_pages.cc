// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/softmax_attention/key_value_pages.h"

#include <cstring>

namespace rivulet {
namespace {

void Store(float x, DType dtype, size_t at, void* plane) {
  if (dtype == DType::kFloat32) {
    static_cast<float*>(plane)[at] = x;
  } else {
    static_cast<uint16_t*>(plane)[at] = FloatToBFloat16(x);
  }
}

}  // namespace

void KeyValuePages::Append(const Segment& segment, size_t head,
                           const SoftmaxAttentionInput& input) const {
  ForEachChunkPiece(segment, planes_.fold_interval, [&](const ChunkPiece& piece) {
    if (!piece.folds) return AppendPiece(piece, head, input, Tail(segment, head));
    const Place page = Page(segment, segment.position / planes_.fold_interval + piece.fold, head);
    if (piece.begin > 0) {
      std::memcpy(page.keys, Tail(segment, head).keys, key_bytes());
      std::memcpy(page.values, Tail(segment, head).values, value_bytes());
    }
    AppendPiece(piece, head, input, page);
  });
}

// Columns of keys [D, C] and rows of values [C, Ep].
void KeyValuePages::AppendPiece(const ChunkPiece& piece, size_t head,
                                const SoftmaxAttentionInput& input, const Place& place) const {
  const size_t padded = shape_.padded_values();
  for (size_t at = piece.begin; at < piece.end; ++at) {
    const size_t row = piece.first_token + at - piece.begin;
    const float* k = input.k.row(row) + head * shape_.padded();
    const float* v = input.v.row(row) + head * padded;
    for (size_t i = 0; i < shape_.head_dim; ++i) {
      Store(k[i], shape_.state_dtype, i * planes_.fold_interval + at, place.keys);
    }
    for (size_t i = 0; i < padded; ++i) {
      Store(v[i], shape_.state_dtype, at * padded + i, place.values);
    }
  }
}

}  // namespace rivulet
