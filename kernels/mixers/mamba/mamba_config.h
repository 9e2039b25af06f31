// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A Mamba-1 layer (docs/mixers.md#mamba).
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_CONFIG_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

struct MambaConfig {
  size_t inner = 0;       // I, channels
  size_t state_size = 0;  // N, at most kMaxKeyDim
  size_t rank = 0;        // R, of Δ's projection
  size_t conv_kernel = 4;
  bool use_bias = false;                // in_proj and out_proj
  bool use_conv_bias = true;            // conv1d
  bool use_scan_norms = false;          // RMS norms on δ, B and C, Falcon's without weights
  bool scan_norms_are_trained = false;  // Jamba's: {dt,b,c}_layernorm.weight
  float scan_norm_eps = 0;              // of those
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const MambaConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_CONFIG_H_
