// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A gated linear attention layer (fla `gla`; docs/mixers.md#gla).
#ifndef RIVULET_KERNELS_MIXERS_GLA_GLA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_GLA_GLA_CONFIG_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/mixers/fla_output.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct GlaConfig {
  size_t heads = 0;
  size_t kv_heads = 0;                             // divides heads
  size_t key_dim = 0;                              // of one head; at most kMaxKeyDim
  size_t value_dim = 0;                            // of one head
  Activation feature_map = Activation::kIdentity;  // applied to q and k
  bool use_short_conv = false;
  size_t conv_size = 4;  // from 2 to kMaxConvolutionWindow
  bool conv_bias = false;
  FlaOutput output = {};
  size_t gate_rank = 16;
  float gate_logit_normalizer = 16.0f;  // above 0
  std::optional<float> clamp_min = {};  // of the log decay; at most 0
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const GlaConfig& config,
                                                 const MixerSource& source);

// Gated linear attention (Yang et al. 2024) as one sum with a decay for each key channel:
//
//   S_t = diag(e^{g_t}) S_{t-1} + k_tᵀ v_t        o_t = q_t S_t
//
// The gate of token t decays the old state only, never its own write. Query heads of a group share
// k, v and g. q is scaled.
RecurrenceDeclaration GlaDeclaration(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GLA_GLA_CONFIG_H_
