// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of the delta rule (docs/mixers.md#deltanet, #gated-deltanet, #log-linear-gated-deltanet):
// DeltaNet, Gated DeltaNet and log-linear Gated DeltaNet are choices of this config.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

// How the checkpoint names and lays out the layer's tensors.
enum class DeltaRuleTensors : uint8_t {
  kFla,        // q_proj, k_proj, v_proj, b_proj, a_proj, g_proj, o_proj, ...
  kQwen35,     // in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, one conv1d, out_proj
  kQwen3Next,  // in_proj_qkvz and in_proj_ba, their rows key head by key head, one conv1d, out_proj
};

struct DeltaRuleConfig {
  HeadShape shape = {};  // heads: of v; groups: key heads. Its state_dtype is set from MixerOptions
  bool decays = false;
  DeltaRuleTensors tensors = DeltaRuleTensors::kFla;
  bool learned_beta = true;                      // β = σ(b_proj x), else 1
  bool negative_eigenvalues = false;             // β doubled: I - β kᵀk reaches from 1 to -1
  Activation qk_activation = Activation::kSilu;  // v's is always SiLU
  bool qk_sum_norm = false;                      // q and k are x / Σx instead of x / |x|
  bool scale_queries = true;                     // by D^{-1/2}
  bool use_gate = false;
  Activation gate_f = Activation::kSilu;  // of the output's gate
  size_t conv_size = 0;                   // window of the convolutions of q, k, v; 0 without
  bool conv_bias = false;
  float norm_eps = 1e-6f;
  // The log-linear form: decays, with as many groups as heads and fla's tensors.
  bool log_linear = false;
  uint32_t max_levels = 0;  // of it; 0: as many as the tensor L has
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const DeltaRuleConfig& config,
                                                 const MixerSource& source);

// The delta rule, with one decay a value head if it decays,
//
//   S̄ = e^{g_t} S_{t-1}    u_t = β_t (v_t - k_t S̄)    S_t = S̄ + k_tᵀ u_t    o_t = q_t S_t
//
// Value heads of a group (grouped value attention) share q and k; each has its own S, β and decay.
// q is scaled. With levels, every term of the read is weighted by its distance, over the pages of
// kernels/recurrence/fenwick.h:
//
//   o_t = Σ_{s<=t} λ_t[ℓ(t, s)] (q_t A_t A_{t-1} ... A_{s+1} k_sᵀ) β_s v_s
//   A_r = e^{g_r} (I - β_r k_rᵀk_r)
RecurrenceDeclaration DeltaRuleDeclaration(const HeadShape& shape, bool decays,
                                           uint32_t levels = 0);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_CONFIG_H_
