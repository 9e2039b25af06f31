// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_CONFIG_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/aligned_buffer.h"

namespace rivulet {

inline constexpr size_t kMostPoolTokens = 16;
inline constexpr size_t kMostIndexDim = 1024;

// How attention chooses what it sees, by pools of consecutive tokens (README.md).
struct PoolSelectionConfig {
  size_t pool = 0;        // P, tokens: 1, 2, 4, 8 or 16; 0: attention sees all tokens
  size_t most = 0;        // K, pools that a token sees, besides the tokens behind the last full one
  size_t heads = 0;       // H, of the scores
  size_t key_dim = 0;     // D, of a query and of a key
  size_t query_rank = 0;  // of what queries are made from
  float norm_eps = 1e-6f;  // of the keys' norm, and of the queries' where they have one
  // Keys of pools are means under gates, and heads have weights (GLM-5.3-Flash); else they are
  // plain means, and all heads count alike (Qwen4-Exp).
  bool gated = true;

  size_t padded() const { return PaddedColumns(key_dim); }
  // Of a row that says what was chosen (softmax_attention/key_value_pages.h).
  size_t columns() const { return pool == 0 ? 0 : 1 + most; }
  // Such rows count pools in fp32, which has every whole number up to 2^24.
  uint64_t max_tokens() const { return pool == 0 ? UINT64_MAX : uint64_t{pool} << 24; }
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_CONFIG_H_
