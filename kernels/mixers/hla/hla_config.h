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
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/rope/rope.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

enum class HlaVariant : uint8_t {
  kSymmetric,   // HLA second order (docs/mixers.md#hla)
  kAsymmetric,  // AHLA (docs/mixers.md#ahla)
  kThird,       // HLA third order (docs/mixers.md#third-order)
};

enum class HlaForm : uint8_t {
  kMasked,  // the exact mask of the decayed moments; third order: docs/mixers.md#third-order-causal
  kSerial,  // the paper's Algorithm 1; second order only
  kUnmasked,  // "none": the prefix product S_t C_t; second order only
  kPaper,     // the paper's Algorithm 3 (docs/mixers.md#third-order-paper); third order only
};

struct HlaConfig {
  HlaVariant variant = HlaVariant::kSymmetric;
  HlaForm form = HlaForm::kMasked;
  HeadShape shape = {};    // its state_dtype is set from MixerOptions
  bool normalize = false;  // outputs are divided by the sum of their weights + denom_eps
  float denom_eps = 1e-6f;
  bool use_decay = false;     // decay_logit [H] is a tensor of the layer
  float ridge_lambda = 0.0f;  // λ
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

// log γ [H] of logits [H]: γ_h = σ(logits[h]) (docs/mixers.md#hla-format). log γ comes straight
// from logsigmoid and never from γ: rounding γ = 0.999 to fp32 alone costs 1e-5 at 4096 tokens
// (docs/mixers.md#precision).
std::vector<double> LogDecays(const AlignedBuffer<float>& logits);

// The config's recurrence as reads of decayed sums, one after the other (hla_recurrence.cc).
// `log_gamma` [H], or empty: γ = 1.
RecurrenceDeclaration HlaDeclaration(const HlaConfig& config, const std::vector<double>& log_gamma);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_CONFIG_H_
