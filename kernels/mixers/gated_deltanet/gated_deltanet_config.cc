// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gated_deltanet/gated_deltanet_config.h"

#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// value_head_dim, or head_dim · expand_v, which must be whole.
absl::StatusOr<size_t> ParseValueWidth(const nlohmann::json& json, size_t key_dim) {
  if (HasField(json, "value_head_dim")) return SizeField(json, "value_head_dim", std::nullopt);
  RIVULET_ASSIGN_OR_RETURN(const double expand, NumberField(json, "expand_v", 2.0));
  const double exact = static_cast<double>(key_dim) * expand;
  const double width = std::round(exact);
  // The tolerance is fla's.
  if (width >= 1 && width <= kLargestSize && std::abs(width - exact) <= 1e-5 * width) {
    return static_cast<size_t>(width);
  }
  return FieldError(
      json, "expand_v",
      absl::StrCat("head_dim ", key_dim, " times it (2 when it is missing) must be a ",
                   "whole number from 1 to ", kLargestSize));
}

// All heads side by side must be a sensible width for a projection.
absl::Status CheckColumns(const nlohmann::json& json, std::string_view key, size_t heads,
                          size_t width) {
  if (heads <= kLargestSize / width) return absl::OkStatus();
  return FieldError(json, key,
                    absl::StrCat("such heads of width ", width, " are more than ", kLargestSize,
                                 " columns: use fewer or narrower ones"));
}

absl::Status ParseSizes(const nlohmann::json& json, DeltaRuleShape& shape) {
  RIVULET_ASSIGN_OR_RETURN(shape.key_heads, SizeField(json, "num_heads", 6));
  RIVULET_ASSIGN_OR_RETURN(shape.value_heads, SizeField(json, "num_v_heads", shape.key_heads));
  if (shape.value_heads % shape.key_heads != 0) {
    return FieldError(json, "num_v_heads",
                      absl::StrCat("must be a multiple of num_heads ", shape.key_heads));
  }
  RIVULET_ASSIGN_OR_RETURN(shape.key_dim, SizeField(json, "head_dim", 256, 1, kMaxKeyDim));
  RIVULET_ASSIGN_OR_RETURN(shape.value_dim, ParseValueWidth(json, shape.key_dim));
  RIVULET_RETURN_IF_ERROR(CheckColumns(json, "num_heads", shape.key_heads, shape.key_dim));
  const std::string_view key = HasField(json, "num_v_heads") ? "num_v_heads" : "num_heads";
  return CheckColumns(json, key, shape.value_heads, shape.value_dim);
}

// Qwen3-Next's tensors always hold a gate and a convolution without bias.
absl::Status ParseTensors(const nlohmann::json& json, DeltaRuleConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(const size_t layout,
                           ChoiceField(json, "tensor_layout", "fla", {"fla", "qwen3_next"}));
  config.tensors = static_cast<DeltaRuleTensors>(layout);
  if (config.tensors == DeltaRuleTensors::kFla) return absl::OkStatus();
  if (!config.use_gate) {
    return FieldError(json, "use_gate", "tensor_layout qwen3_next has a gate; use true");
  }
  if (config.conv_size == 0) {
    return FieldError(json, "use_short_conv",
                      "tensor_layout qwen3_next has a convolution; use true");
  }
  if (config.conv_bias) {
    return FieldError(json, "conv_bias", "tensor_layout qwen3_next has no such tensor; use false");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeltaRuleConfig> ParseGatedDeltaNetConfig(const nlohmann::json& json,
                                                         const MixerOptions& options) {
  DeltaRuleConfig config;
  config.shape.decays = true;
  config.shape.state_dtype = options.state_dtype;
  RIVULET_RETURN_IF_ERROR(ParseSizes(json, config.shape));
  RIVULET_ASSIGN_OR_RETURN(config.use_gate, BoolField(json, "use_gate", true));
  RIVULET_RETURN_IF_ERROR(ParseDeltaRuleKeys(json, config));
  RIVULET_RETURN_IF_ERROR(ParseTensors(json, config));
  return config;
}

}  // namespace rivulet
