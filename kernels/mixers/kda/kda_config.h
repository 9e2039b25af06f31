// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of Kimi Delta Attention (docs/mixers.md#kda).
#ifndef RIVULET_KERNELS_MIXERS_KDA_KDA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_KDA_KDA_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

// How the checkpoint names the layer's tensors (README.md).
enum class KdaTensors : uint8_t {
  kFla,   // f_proj.0, f_proj.1, g_proj.0, g_proj.1
  kKimi,  // f_a_proj, f_b_proj, g_a_proj, g_b_proj; transformers' or Moonshot's
};

struct KdaConfig {
  // heads: of v; groups: of q and k, which divide them. Its state_dtype is set from MixerOptions.
  HeadShape shape = {};
  KdaTensors tensors = KdaTensors::kFla;
  size_t gate_rank = 0;  // of the two low-rank maps, of the decay and of the gate
  size_t conv_size = 0;  // window of the convolutions of q, k, v; 0 without
  bool gate_bias = true;
  bool negative_eigenvalues = false;      // β doubled: the transition reaches from 1 to -1
  std::optional<float> lower_bound = {};  // of a log decay, < 0; none: it is a softplus
  float norm_eps = 1e-6f;
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const KdaConfig& config,
                                                 const MixerSource& source);

// The delta rule with a log decay for each key channel,
//
//   S̄ = diag(e^{g_t}) S_{t-1}    u_t = β_t (v_t - k_t S̄)    S_t = S̄ + k_tᵀ u_t    o_t = q_t S_t
//
// Value heads of a group share q and k; each has its own S, β and decays. q is scaled.
RecurrenceDeclaration KdaDeclaration(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_KDA_KDA_CONFIG_H_
