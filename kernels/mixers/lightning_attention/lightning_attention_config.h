// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A lightning attention layer (transformers `minimax`; README.md).
#ifndef RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_CONFIG_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct LightningAttentionConfig {
  size_t heads = 0;
  size_t head_dim = 0;  // of q, k and v; at most kMaxKeyDim
  // log γ of each head, at most 0. It also depends on the layer's place in the model.
  std::vector<double> log_decay = {};
  float norm_eps = 1e-6f;
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LightningAttentionConfig& config,
                                                 const MixerSource& source);

// Linear attention without a feature map or normaliser, with a constant decay for each head
// (Qin et al. 2024, MiniMax 2025):
//
//   S_t = γ_h S_{t-1} + k_tᵀ v_t        o_t = q_t S_t
//
// q, k and v are silu(·) already; nothing is scaled.
RecurrenceDeclaration LightningAttentionDeclaration(const HeadShape& shape,
                                                    const std::vector<double>& log_decay);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_CONFIG_H_
