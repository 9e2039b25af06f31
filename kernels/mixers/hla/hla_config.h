// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The config keys of model_type "hla" (docs/mixers.md#hla-format), read and judged. Knows no
// tensor.
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <optional>

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
  HigherOrderShape shape;
  bool use_decay = false;     // decay_logit [H] is a tensor of the layer
  float ridge_lambda = 0.0f;  // λ
  Activation qk_activation = Activation::kIdentity;
  std::optional<RopeConfig> rope;  // rotary positions of q and k, before l2 norm and scale
  bool qk_l2_norm = false;
  float qk_scale = 1.0f;  // on both q and k: the operator is of degree four in (q, k)
  bool use_output_gate = true;
  size_t conv_size = 0;  // window of the short convolutions of q, k, v; 0 without
  float norm_eps = 1e-5f;
};

// Fails with INVALID_ARGUMENT naming the key, its value and the remedy.
absl::StatusOr<HlaConfig> ParseHlaConfig(const nlohmann::json& config, size_t hidden,
                                         const MixerOptions& options);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_
