// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/linear_attention_config.h"

#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/fla_heads.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

absl::StatusOr<FeatureMapKind> ParseKind(const nlohmann::json& json) {
  constexpr FeatureMapKind kKinds[] = {FeatureMapKind::kElementwiseProduct,
                                       FeatureMapKind::kElu,
                                       FeatureMapKind::kHedgehog,
                                       FeatureMapKind::kT2r,
                                       FeatureMapKind::kDpfp,
                                       FeatureMapKind::kRelu,
                                       FeatureMapKind::kIdentity,
                                       FeatureMapKind::kRandomRelu,
                                       FeatureMapKind::kRandomExp};
  RIVULET_ASSIGN_OR_RETURN(const size_t index,
                           ChoiceField(json, "feature_map", "elementwise_product",
                                       {"elementwise_product", "elu", "hedgehog", "t2r", "dpfp",
                                        "relu", "identity", "random_relu", "random_exp"}));
  return kKinds[index];
}

absl::StatusOr<float> NumberIn(const nlohmann::json& json, std::string_view key, double otherwise,
                               double low, double high) {
  RIVULET_ASSIGN_OR_RETURN(const double value, NumberField(json, key, otherwise));
  if (value >= low && value <= high) return static_cast<float>(value);
  return FieldError(json, key, absl::StrCat("it must be a number from ", low, " to ", high));
}

// The keys of the maps with a projection. Performer divides queries and keys by d^{1/4} each, so
// that their product is over √d.
absl::Status ParseProjection(const nlohmann::json& json, FeatureMapConfig& map) {
  const double usual = std::pow(static_cast<double>(map.width), -0.25);
  RIVULET_ASSIGN_OR_RETURN(map.random_features,
                           SizeField(json, "num_random_features", std::nullopt, 1, kMaxKeyDim));
  RIVULET_ASSIGN_OR_RETURN(map.bias, BoolField(json, "feature_map_bias", false));
  RIVULET_ASSIGN_OR_RETURN(map.input_scale,
                           NumberIn(json, "feature_map_input_scale", usual, 1e-6, 1e6));
  RIVULET_ASSIGN_OR_RETURN(map.offset, NumberIn(json, "feature_map_offset", 1e-3, 0.0, 1e6));
  return absl::OkStatus();
}

absl::StatusOr<FeatureMapConfig> ParseFeatureMap(const nlohmann::json& json, size_t width) {
  FeatureMapConfig map;
  map.width = width;
  RIVULET_ASSIGN_OR_RETURN(map.kind, ParseKind(json));
  if (map.kind == FeatureMapKind::kRandomRelu || map.kind == FeatureMapKind::kRandomExp) {
    RIVULET_RETURN_IF_ERROR(ParseProjection(json, map));
  }
  return map;
}

absl::Status CheckFeatures(const nlohmann::json& json, const LinearAttentionConfig& config,
                           const MixerOptions& options) {
  const size_t features = FeatureCount(config.feature_map);
  if (features > kMaxKeyDim) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads of width ", config.key_dim, " have ", features,
                     " features with this feature_map, more than ", kMaxKeyDim,
                     ": use more heads (num_heads) or a smaller expand_k"));
  }
  if (options.state_dtype != DType::kBFloat16 || !NonNegativeFeatures(config.feature_map.kind)) {
    return absl::OkStatus();
  }
  // A sum that only grows stops taking bf16 additions: at 256 times an addend it no longer moves.
  return FieldError(json, "feature_map",
                    "its features are never negative and nothing decays, so its sums outgrow "
                    "--state-dtype bf16; use --state-dtype fp32");
}

}  // namespace

absl::StatusOr<LinearAttentionConfig> ParseLinearAttentionConfig(const nlohmann::json& json,
                                                                 size_t hidden,
                                                                 const MixerOptions& options) {
  LinearAttentionConfig config;
  RIVULET_ASSIGN_OR_RETURN(const FlaHeads heads, ParseFlaHeads(json, hidden, 1.0, 1.0));
  config.heads = heads.heads;
  config.kv_heads = heads.kv_heads;
  config.key_dim = heads.key_dim;
  config.value_dim = heads.value_dim;
  RIVULET_ASSIGN_OR_RETURN(config.feature_map, ParseFeatureMap(json, config.key_dim));
  RIVULET_ASSIGN_OR_RETURN(config.tie_feature_map, BoolField(json, "tie_feature_map_qk", false));
  RIVULET_ASSIGN_OR_RETURN(config.norm_q, BoolField(json, "norm_q", false));
  RIVULET_ASSIGN_OR_RETURN(config.norm_k, BoolField(json, "norm_k", false));
  RIVULET_ASSIGN_OR_RETURN(config.normalised, BoolField(json, "norm_feature_map", false));
  RIVULET_ASSIGN_OR_RETURN(config.affine, BoolField(json, "elementwise_affine", true));
  RIVULET_ASSIGN_OR_RETURN(config.norm_eps, EpsField(json, "norm_eps", 1e-6));
  RIVULET_RETURN_IF_ERROR(CheckFeatures(json, config, options));
  return config;
}

}  // namespace rivulet
