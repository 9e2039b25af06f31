// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A softmax attention layer (docs/mixers.md#softmax-attention).
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/pool_selection/pool_selection_config.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {

// The norm of q and k, before they are rotated: of each head, or of all heads together.
enum class HeadNorm : uint8_t {
  kNone,
  kRms,         // · weight
  kRmsOnePlus,  // · (1 + weight)
  kRmsAll,      // of all heads together, · weight (OLMo)
};

// The names of the output projection and of the norms of q and k.
enum class AttentionTensors : uint8_t {
  kUsual,  // o_proj, q_norm, k_norm
  kLfm2,   // out_proj, q_layernorm, k_layernorm
};

struct SoftmaxAttentionConfig {
  AttentionTensors tensors = AttentionTensors::kUsual;
  size_t heads = 0;
  size_t kv_heads = 0;                  // divides heads
  size_t head_dim = 0;                  // at most kMostAttentionHeadDim
  std::optional<RopeConfig> rope = {};  // none: positions are not rotated
  bool qkv_bias = false;
  bool output_bias = false;
  HeadNorm qk_norm = HeadNorm::kNone;
  float norm_eps = 1e-6f;
  bool output_gate = false;
  uint64_t window = 0;  // tokens that are seen, the query's own included; 0: all
  uint64_t unseen = 0;  // tokens at the beginning that none after them sees
  float scale = 0;      // of a score; above 0
  // The tokens that are seen (../pool_selection); pool 0: as above. Then there is a rope, and
  // neither window nor unseen tokens.
  PoolSelectionConfig selection = {};
  size_t inputs = 0;  // width of what the layer reads; 0: that of the residual stream
  // Not 0: to q, k and v low-rank maps of the input are added, the tensors
  // linear_{q,k,v}_adapter_list.<adapter>.{0,1} of this rank (Zamba2).
  size_t adapter_rank = 0;
  size_t adapter = 0;
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const SoftmaxAttentionConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_CONFIG_H_
