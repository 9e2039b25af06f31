// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What config.json decides about a Mamba-2 layer (docs/mixers.md#mamba-2). Takes the spellings of
// transformers, fla and state-spaces; where two are present, transformers' counts.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_

#include <cstddef>
#include <limits>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

struct Mamba2Config {
  size_t heads = 0;       // H
  size_t head_dim = 0;    // P
  size_t state_size = 0;  // N
  size_t groups = 0;      // G, divides heads
  size_t conv_kernel = 4;
  bool use_bias = false;         // in_proj and out_proj
  bool use_conv_bias = true;     // conv1d
  bool skip_by_channel = false;  // D is [I], else [H]
  bool use_norm = true;          // rmsnorm; without it the gate alone
  bool norm_before_gate = false;
  bool full_norm = false;  // over all channels, not by group (Granite; else --mamba2-norm)
  float norm_eps = 1e-5f;
  float delta_low = 0.0f;  // Δ is clamped to [delta_low, delta_high]
  float delta_high = std::numeric_limits<float>::infinity();

  size_t inner() const { return heads * head_dim; }  // I
};

// INVALID_ARGUMENT names the key, its value and the remedy.
absl::StatusOr<Mamba2Config> ParseMamba2Config(const nlohmann::json& json, size_t hidden);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_
