// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What config.json decides about a Mamba-1 layer (docs/mixers.md#mamba), in transformers' keys.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_CONFIG_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct MambaConfig {
  size_t inner = 0;       // I, channels
  size_t state_size = 0;  // N
  size_t rank = 0;        // R, of Δ's projection
  size_t conv_kernel = 4;
  bool use_bias = false;        // in_proj and out_proj
  bool use_conv_bias = true;    // conv1d
  bool use_scan_norms = false;  // Falcon's RMS norms, without weights, on δ, B and C
  float scan_norm_eps = 0;      // of those
};

// INVALID_ARGUMENT names the key, its value and the remedy.
absl::StatusOr<MambaConfig> ParseMambaConfig(const nlohmann::json& json, size_t hidden);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_CONFIG_H_
