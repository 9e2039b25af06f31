// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/check.h"
#include "kernels/base/widen.h"
#include "kernels/ops/embedding/embedding.h"

namespace rivulet {
namespace {

void ScaleRow(float multiplier, size_t width, float* x) {
  for (size_t i = 0; i < width; ++i) x[i] *= multiplier;
}

template <typename Number>
void WidenLane(const Number* lane, size_t width, float* x) {
  for (size_t i = 0; i < width; ++i) {
    const Number entry = lane[i * kBlock];
    if constexpr (sizeof(Number) == sizeof(float)) {
      x[i] = entry;
    } else {
      x[i] = BFloat16ToFloat(entry);
    }
  }
}

void CopyRow(const EmbeddingTable& table, size_t id, float* x) {
  if (!table.in_panels) {
    const size_t row_bytes = table.width * DTypeSize(table.dtype);
    const std::byte* row = static_cast<const std::byte*>(table.data) + id * row_bytes;
    return WidenToFloat(row, table.dtype, table.width, x);
  }
  const size_t lane = id / kBlock * table.width * kBlock + id % kBlock;
  if (table.dtype == DType::kFloat32) {
    return WidenLane(static_cast<const float*>(table.data) + lane, table.width, x);
  }
  WidenLane(static_cast<const uint16_t*>(table.data) + lane, table.width, x);
}

}  // namespace

void Embed(const EmbeddingTable& table, std::span<const uint32_t> ids, FloatMatrix x) {
  for (size_t t = 0; t < ids.size(); ++t) {
    RIVULET_CHECK(ids[t] < table.vocab, "token id outside of the embedding table");
    CopyRow(table, ids[t], x.row(t));
    if (table.multiplier != 1) ScaleRow(table.multiplier, table.width, x.row(t));
  }
}

}  // namespace rivulet
