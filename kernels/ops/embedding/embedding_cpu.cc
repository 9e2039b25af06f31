// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "kernels/base/check.h"
#include "kernels/base/widen.h"
#include "kernels/ops/embedding/embedding.h"

namespace rivulet {
namespace {

void ScaleRow(float multiplier, size_t width, float* x) {
  for (size_t i = 0; i < width; ++i) x[i] *= multiplier;
}

}  // namespace

void Embed(const EmbeddingTable& table, std::span<const uint32_t> ids, FloatMatrix x) {
  const size_t row_bytes = table.width * DTypeSize(table.dtype);
  for (size_t t = 0; t < ids.size(); ++t) {
    RIVULET_CHECK(ids[t] < table.vocab, "token id outside of the embedding table");
    const std::byte* row = static_cast<const std::byte*>(table.data) + ids[t] * row_bytes;
    WidenToFloat(row, table.dtype, table.width, x.row(t));
    if (table.multiplier != 1) ScaleRow(table.multiplier, table.width, x.row(t));
  }
}

}  // namespace rivulet
