// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A retention layer (fla `retnet`; docs/mixers.md#retnet).
#ifndef RIVULET_KERNELS_MIXERS_RETNET_RETNET_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_RETNET_RETNET_CONFIG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/fla_output.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct RetNetConfig {
  size_t heads = 0;
  size_t kv_heads = 0;                             // divides heads
  size_t key_dim = 0;                              // of one head; even, at most kMaxKeyDim
  size_t value_dim = 0;                            // of one head
  Activation feature_map = Activation::kIdentity;  // applied to q and k, before the rotation
  bool use_short_conv = false;
  size_t conv_size = 4;  // from 2 to kMaxConvolutionWindow
  bool conv_bias = false;
  FlaOutput output = {};
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const RetNetConfig& config,
                                                 const MixerSource& source);

// Multi-scale retention (Sun et al. 2023) as one sum with a constant decay for each head:
//
//   S_t = γ_h S_{t-1} + k_tᵀ v_t        o_t = q_t S_t        γ_h = 1 - 2^{-5-h}, h from 0
//
// Query heads of a group share k and v, but each has its own γ and so its own S. q and k are
// rotated already, and q is scaled.
RecurrenceDeclaration RetNetDeclaration(const HeadShape& shape);

// log γ of a head. 1 - 2^{-5-h} is rounded to fp32 before the logarithm, as fla has it: from the
// 21st head on it is 1, and nothing decays.
double RetentionLogDecay(size_t head);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RETNET_RETNET_CONFIG_H_
