// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A Mamba-2 layer (docs/mixers.md#mamba-2, #log-linear-mamba-2).
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct Mamba2Config {
  size_t heads = 0;        // H
  size_t head_dim = 0;     // P
  size_t state_size = 0;   // N, at most kMaxKeyDim
  size_t groups = 0;       // G, divides heads
  size_t norm_groups = 0;  // of channels that are normed together: G, or 1 for all (Granite)
  size_t conv_kernel = 4;
  bool use_bias = false;         // in_proj
  bool output_bias = false;      // out_proj
  bool use_conv_bias = true;     // conv1d
  bool skip_by_channel = false;  // D is [I], else [H]
  bool use_norm = true;          // without it the gate alone
  bool norm_before_gate = false;
  float norm_eps = 1e-5f;
  float delta_low = 0.0f;  // Δ is clamped to [delta_low, delta_high]
  float delta_high = std::numeric_limits<float>::infinity();
  // Of the columns of in_proj that are the gate, x, B, C and Δ (Falcon-H1).
  std::array<float, 5> multipliers = {1, 1, 1, 1, 1};
  bool log_linear = false;  // the log-linear form, with one group
  uint32_t max_levels = 0;  // of it; 0: as many as the tensor L has

  size_t inner() const { return heads * head_dim; }  // I
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Mamba2Config& config,
                                                 const MixerSource& source);

// The trained constants of the recurrence.
struct Mamba2Constants {
  std::vector<float> a;  // [H], -exp(A_log) < 0
  std::vector<float> d;  // [H*P], the skip
};

// State space duality (Dao and Gu 2024) as one sum a head with a scalar decay, queries C_t, keys
// B_t, values Δ_t x_t, and no 1/√N:
//
//   S_t = e^{A Δ_t} S_{t-1} + B_tᵀ (Δ_t x_t)        y_t = C_t S_t + D ∘ x_t
//
// Heads of a group share B and C, which are kept once. With levels, for one group, every term of
// the read is weighted by its distance, over the pages of kernels/recurrence/fenwick.h:
//
//   y_t = Σ_{s<=t} λ_t[ℓ(t, s)] (C_t·B_s) e^{A (Δ_{s+1} + ... + Δ_t)} Δ_s x_s + D ∘ x_t
//
// `shape` has N as its key width and P as its value width. TokenInputs: q is C, k is B, v is x
// [T, H*P] without padding between heads, decay is Δ >= 0.
RecurrenceDeclaration Mamba2Declaration(const HeadShape& shape, const Mamba2Constants& constants,
                                        uint32_t levels = 0);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_CONFIG_H_
