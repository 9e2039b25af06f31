// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of higher-order linear attention: HLA, AHLA and the third order
// (docs/mixers.md#hla-format).
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/hla/hla_recurrence.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {

enum class HlaVariant : uint8_t {
  kSymmetric,   // HLA second order (docs/mixers.md#hla)
  kAsymmetric,  // AHLA (docs/mixers.md#ahla)
  kThird,       // HLA third order (docs/mixers.md#third-order)
};

struct HlaConfig {
  HlaVariant variant = HlaVariant::kSymmetric;
  HlaForm form = HlaForm::kMasked;
  HigherOrderShape shape = {};  // its state_dtype is set from MixerOptions
  bool use_decay = false;       // decay_logit [H] is a tensor of the layer
  float ridge_lambda = 0.0f;    // λ
  Activation qk_activation = Activation::kIdentity;
  std::optional<RopeConfig> rope = {};  // rotary positions of q and k, before l2 norm and scale
  bool qk_l2_norm = false;
  float qk_scale = 1.0f;  // on both q and k: the operator is of degree four in (q, k)
  bool use_output_gate = true;
  size_t conv_size = 0;  // window of the short convolutions of q, k, v; 0 without
  float norm_eps = 1e-5f;
};

// Tensors: q_proj, k_proj, v_proj, o_proj .weight, o_norm.weight [E]; g_proj.weight with
// use_output_gate; decay_logit [H] with use_decay; {q,k,v}_conv1d.weight [channels, 1, W] with
// conv_size.
absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const HlaConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_
