// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What config.json decides about a softmax attention layer (docs/mixers.md#softmax-attention).
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/ops/rope/rope.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// The norm of each head of q and k, before they are rotated.
enum class HeadNorm : uint8_t {
  kNone,
  kRms,         // · weight
  kRmsOnePlus,  // · (1 + weight)
};

struct SoftmaxAttentionConfig {
  size_t heads = 0;
  size_t kv_heads = 0;  // divides heads
  size_t head_dim = 0;
  std::optional<RopeConfig> rope;  // none: positions are not rotated
  bool qkv_bias = false;
  bool output_bias = false;
  HeadNorm qk_norm = HeadNorm::kNone;
  float norm_eps = 1e-6f;
  bool output_gate = false;
  uint64_t window = 0;  // tokens that are seen, the query's own included; 0: all
  float scale = 0;      // of a score
};

// INVALID_ARGUMENT names the key, its value and the remedy.
absl::StatusOr<SoftmaxAttentionConfig> ParseSoftmaxAttentionConfig(const nlohmann::json& json,
                                                                   size_t hidden);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_CONFIG_H_
