// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/ops/embedding/embedding.h"

namespace rivulet {
namespace {

float WidenHalf(DType dtype, uint16_t bits) {
  return dtype == DType::kBFloat16 ? BFloat16ToFloat(bits) : Float16ToFloat(bits);
}

// Copies through memcpy: `from` need not be aligned.
void WidenRow(const std::byte* from, DType dtype, size_t width, float* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, from, width * sizeof(float));
    return;
  }
  for (size_t i = 0; i < width; ++i) {
    uint16_t bits;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    to[i] = WidenHalf(dtype, bits);
  }
}

void ScaleRow(float multiplier, size_t width, float* x) {
  for (size_t i = 0; i < width; ++i) x[i] *= multiplier;
}

}  // namespace

void Embed(const EmbeddingTable& table, std::span<const uint32_t> ids, FloatMatrix x) {
  const size_t row_bytes = table.width * DTypeSize(table.dtype);
  for (size_t t = 0; t < ids.size(); ++t) {
    RIVULET_CHECK(ids[t] < table.vocab, "token id outside of the embedding table");
    const std::byte* row = static_cast<const std::byte*>(table.data) + ids[t] * row_bytes;
    WidenRow(row, table.dtype, table.width, x.row(t));
    if (table.multiplier != 1) ScaleRow(table.multiplier, table.width, x.row(t));
  }
}

}  // namespace rivulet
