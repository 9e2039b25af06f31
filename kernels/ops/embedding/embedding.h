// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Token ids → rows of the embedding table, widened to fp32. The table may be the panels of a tied
// output map (linear.h), so that both are in memory once.
#ifndef RIVULET_KERNELS_OPS_EMBEDDING_EMBEDDING_H_
#define RIVULET_KERNELS_OPS_EMBEDDING_EMBEDDING_H_

#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace rivulet {

// A [vocab, width] table of any DType, not owned; need not be aligned. Row-major, or as Linear
// packs it: panels of 16 rows, [vocab / 16][width][16], of which a row is one lane. A row of a
// panel takes 16 times the cache lines, which does not show beside the output map, which is read
// whole for the same token (docs/architecture.md#memory).
struct EmbeddingTable {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  size_t vocab = 0;
  size_t width = 0;
  float multiplier = 1;    // of every entry (Granite); 1 costs nothing
  bool in_panels = false;  // kFloat32 or kBFloat16
};

// x [T, width] = table rows of ids [T], times the multiplier. REQUIRES: every id < vocab (the
// request layer refuses others).
void Embed(const EmbeddingTable& table, std::span<const uint32_t> ids, FloatMatrix x);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_EMBEDDING_EMBEDDING_H_
