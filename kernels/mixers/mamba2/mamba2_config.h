// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A Mamba-2 layer (docs/mixers.md#mamba-2).
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_

#include <cstddef>
#include <limits>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

struct Mamba2Config {
  size_t heads = 0;        // H
  size_t head_dim = 0;     // P
  size_t state_size = 0;   // N, at most kMaxKeyDim
  size_t groups = 0;       // G, divides heads
  size_t norm_groups = 0;  // of channels that are normed together: G, or 1 for all (Granite)
  size_t conv_kernel = 4;
  bool use_bias = false;         // in_proj and out_proj
  bool use_conv_bias = true;     // conv1d
  bool skip_by_channel = false;  // D is [I], else [H]
  bool use_norm = true;          // without it the gate alone
  bool norm_before_gate = false;
  float norm_eps = 1e-5f;
  float delta_low = 0.0f;  // Δ is clamped to [delta_low, delta_high]
  float delta_high = std::numeric_limits<float>::infinity();

  size_t inner() const { return heads * head_dim; }  // I
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Mamba2Config& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_
