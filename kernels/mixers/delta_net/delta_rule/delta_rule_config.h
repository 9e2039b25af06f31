// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of the delta rule: DeltaNet and Gated DeltaNet are choices of this config
// (docs/mixers.md#deltanet, #gated-deltanet).
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

// How the checkpoint names and lays out the layer's tensors.
enum class DeltaRuleTensors : uint8_t {
  kFla,        // q_proj, k_proj, v_proj, b_proj, a_proj, g_proj, o_proj, ...
  kQwen3Next,  // in_proj_qkvz and in_proj_ba, their rows key head by key head, one conv1d, out_proj
};

struct DeltaRuleConfig {
  DeltaRuleShape shape = {};  // its state_dtype is set from MixerOptions
  DeltaRuleTensors tensors = DeltaRuleTensors::kFla;
  bool learned_beta = true;                      // β = σ(b_proj x), else 1
  bool negative_eigenvalues = false;             // β doubled: I - β kᵀk reaches from 1 to -1
  Activation qk_activation = Activation::kSilu;  // v's is always SiLU
  bool qk_sum_norm = false;                      // q and k are x / Σx instead of x / |x|
  bool scale_queries = true;                     // by D^{-1/2}
  bool use_gate = false;
  size_t conv_size = 0;  // window of the convolutions of q, k, v; 0 without
  bool conv_bias = false;
  float norm_eps = 1e-6f;
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const DeltaRuleConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_CONFIG_H_
