// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/retnet/retnet_config.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/fla_heads.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr size_t kDefaultHeads = 8;

absl::Status ParseSizes(const nlohmann::json& json, size_t hidden, RetNetConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(const FlaHeads heads,
                           ParseFlaHeads(json, hidden, 1.0, 2.0, kDefaultHeads));
  config.heads = heads.heads;
  config.kv_heads = heads.kv_heads;
  config.key_dim = heads.key_dim;
  config.value_dim = heads.value_dim;
  RIVULET_RETURN_IF_ERROR(CheckKeyWidth(heads));
  if (config.key_dim % 2 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "heads of key width ", config.key_dim,
      " cannot be rotated in pairs: choose num_heads and expand_k so that it is even"));
}

absl::Status ParseFeatures(const nlohmann::json& json, RetNetConfig& config) {
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

}  // namespace

absl::StatusOr<RetNetConfig> ParseRetNetConfig(const nlohmann::json& json, size_t hidden) {
  RetNetConfig config;
  RIVULET_RETURN_IF_ERROR(ParseSizes(json, hidden, config));
  RIVULET_RETURN_IF_ERROR(ParseFeatures(json, config));
  RIVULET_ASSIGN_OR_RETURN(config.output, ParseFlaOutput(json));
  return config;
}

}  // namespace rivulet
