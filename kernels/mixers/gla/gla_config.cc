// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gla/gla_config.h"

#include "kernels/base/status.h"
#include "kernels/mixers/fla_heads.h"
#include "kernels/mixers/fla_output.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

absl::Status ParseSizes(const nlohmann::json& json, size_t hidden, GlaConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(const FlaHeads heads, ParseFlaHeads(json, hidden, 0.5, 1.0));
  config.heads = heads.heads;
  config.kv_heads = heads.kv_heads;
  config.key_dim = heads.key_dim;
  config.value_dim = heads.value_dim;
  return CheckKeyWidth(heads);
}

absl::Status ParseFeatures(const nlohmann::json& json, GlaConfig& config) {
  constexpr Activation kMaps[] = {Activation::kIdentity, Activation::kRelu, Activation::kSigmoid,
                                  Activation::kSilu, Activation::kSilu};
  RIVULET_ASSIGN_OR_RETURN(const size_t map,
                           ChoiceField(json, "feature_map", "identity",
                                       {"identity", "relu", "sigmoid", "silu", "swish"}));
  config.feature_map = kMaps[map];
  RIVULET_ASSIGN_OR_RETURN(config.use_short_conv, BoolField(json, "use_short_conv", false));
  RIVULET_ASSIGN_OR_RETURN(config.conv_size, SizeField(json, "conv_size", 4, 2, kFoldInterval));
  RIVULET_ASSIGN_OR_RETURN(config.conv_bias, BoolField(json, "conv_bias", false));
  return absl::OkStatus();
}

absl::Status ParseDecay(const nlohmann::json& json, GlaConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(config.gate_rank, SizeField(json, "gate_low_rank_dim", 16));
  RIVULET_ASSIGN_OR_RETURN(const double normalizer,
                           NumberField(json, "gate_logit_normalizer", 16.0));
  if (!(normalizer >= 1e-3 && normalizer <= 1e6)) {
    return FieldError(json, "gate_logit_normalizer", "must be from 0.001 to 1000000");
  }
  config.gate_logit_normalizer = static_cast<float>(normalizer);
  if (!HasField(json, "clamp_min")) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const double clamp, NumberField(json, "clamp_min", 0.0));
  if (!(clamp <= 0)) return FieldError(json, "clamp_min", "log decays are at most 0, use null");
  config.clamp_min = static_cast<float>(clamp);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GlaConfig> ParseGlaConfig(const nlohmann::json& json, size_t hidden) {
  GlaConfig config;
  RIVULET_RETURN_IF_ERROR(ParseSizes(json, hidden, config));
  RIVULET_RETURN_IF_ERROR(ParseFeatures(json, config));
  RIVULET_RETURN_IF_ERROR(ParseDecay(json, config));
  RIVULET_ASSIGN_OR_RETURN(config.output, ParseFlaOutput(json));
  return config;
}

}  // namespace rivulet
