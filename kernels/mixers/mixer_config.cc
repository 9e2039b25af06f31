// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mixer_config.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/linear_attention/feature_map.h"

namespace rivulet {
namespace {

// Which states must stay fp32, and why. A sum that only grows stops moving in bf16: after a few
// hundred additions an addend is less than half a unit in the last place of the sum
// (docs/architecture.md#bf16-state). Decay bounds a sum, and signed addends keep it small; a sum
// with neither, or one whose rounding errors are never overwritten, is refused. Empty: bf16 is
// fine.

template <typename Config>
std::string_view WhyFloat32(const Config&) {
  return "";
}

std::string_view WhyFloat32(const AnnaConfig&) {
  return "anna keeps sums and counts that only grow";
}

std::string_view WhyFloat32(const LinearAttentionConfig& config) {
  if (!NonNegativeFeatures(config.feature_map.kind)) return "";
  return "with this feature_map features are never negative and nothing decays, so sums only grow";
}

// 1 - γ of the slow heads is less than bf16 resolves.
std::string_view WhyFloat32(const RetNetConfig& config) {
  const bool positive =
      config.feature_map == Activation::kRelu || config.feature_map == Activation::kSigmoid;
  if (!positive) return "";
  return "with this feature_map features are never negative, and the slow heads of retnet hardly "
         "decay, so their sums only grow";
}

// A state forgets its rounding errors along its keys alone: not where β = 2 makes a transition a
// reflection, and too slowly with the short keys of the sum norm (delta_net/NOTES.md). A decay
// forgets them everywhere.
std::string_view WhyFloat32(const DeltaRuleConfig& config) {
  if (config.decays) return "";
  if (config.negative_eigenvalues) {
    return "allow_neg_eigval is true: rounding errors would gather and never be overwritten";
  }
  if (config.qk_sum_norm) {
    return "qk_norm is \"sum\": rounding errors would gather and never be overwritten";
  }
  return "";
}

std::string_view WhyFloat32(const LightningAttentionConfig&) {
  return "the keys and values of lightning attention are nearly never negative, and its slow heads "
         "hardly decay, so their sums only grow";
}

// S = Σ kᵀk grows on its diagonal for keys of any sign: its outputs are 28 % off after
// 16k tokens (hla/NOTES.md).
std::string_view WhyFloat32(const HlaConfig& config) {
  if (config.form == HlaForm::kPaper) {
    return "hla_form is \"paper\": it subtracts sums that nearly cancel";
  }
  const bool grows =
      config.variant != HlaVariant::kAsymmetric || config.qk_activation != Activation::kIdentity;
  return grows && !config.use_decay ? "use_decay is false: the sums only grow" : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeMixer(const MixerConfig& config,
                                                 const MixerSource& source) {
  return std::visit(
      [&](const auto& layer) -> absl::StatusOr<std::unique_ptr<Mixer>> {
        const std::string_view why = WhyFloat32(layer);
        if (source.options.state_dtype == DType::kFloat32 || why.empty()) {
          return MakeLayer(layer, source);
        }
        return absl::InvalidArgumentError(
            absl::StrCat(ToAbsl(why), ", which a bf16 state cannot hold; use --state-dtype fp32"));
      },
      config);
}

}  // namespace rivulet
