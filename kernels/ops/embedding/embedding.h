// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Token ids → rows of the embedding table, widened to fp32. Knows nothing of tying: a tied output
// map is packed separately (linear.h), because it is read in another order.
#ifndef RIVULET_KERNELS_OPS_EMBEDDING_EMBEDDING_H_
#define RIVULET_KERNELS_OPS_EMBEDDING_EMBEDDING_H_

#include <cstdint>
#include <span>

#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace rivulet {

// A [vocab, width] table of any DType, row-major, not owned (a mapped file; need not be aligned).
struct EmbeddingTable {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  size_t vocab = 0;
  size_t width = 0;
  float multiplier = 1;  // of every entry (Granite); 1 costs nothing
};

// x [T, width] = table rows of ids [T], times the multiplier. REQUIRES: every id < vocab (the
// request layer refuses others).
void Embed(const EmbeddingTable& table, std::span<const uint32_t> ids, FloatMatrix x);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_EMBEDDING_EMBEDDING_H_
