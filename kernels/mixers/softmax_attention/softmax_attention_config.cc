// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/softmax_attention/softmax_attention_config.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/rope_config.h"
#include "kernels/mixers/softmax_attention/attend_span.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

// fla's and transformers' default; without head_dim the heads share the hidden size.
absl::Status ParseHeadDim(const json& object, size_t hidden, SoftmaxAttentionConfig& config) {
  if (!HasField(object, "head_dim") && hidden % config.heads != 0) {
    return FieldError(
        object, "num_heads",
        absl::StrCat("it must divide hidden_size ", hidden, " where head_dim is absent"));
  }
  RIVULET_ASSIGN_OR_RETURN(config.head_dim, SizeField(object, "head_dim", hidden / config.heads));
  if (config.head_dim >= 1 && config.head_dim <= kMostAttentionHeadDim) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("heads of ", config.head_dim,
                                                 " numbers are wider than ", kMostAttentionHeadDim,
                                                 ": use more heads (num_heads) or set head_dim"));
}

absl::Status ParseSizes(const json& object, size_t hidden, SoftmaxAttentionConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(config.heads, SizeField(object, "num_heads", 32));
  RIVULET_ASSIGN_OR_RETURN(config.kv_heads, SizeField(object, "num_kv_heads", config.heads));
  if (config.heads % config.kv_heads != 0) {
    return FieldError(object, "num_kv_heads",
                      absl::StrCat("must divide num_heads ", config.heads, " without remainder"));
  }
  RIVULET_RETURN_IF_ERROR(ParseHeadDim(object, hidden, config));
  if (!HasField(object, "window_size")) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(config.window, SizeField(object, "window_size", std::nullopt));
  return absl::OkStatus();
}

// rope_theta: null, written out, is how a config says that it has no rotary positions.
bool Rotates(const json& object) {
  if (HasField(object, "rope_parameters")) return true;
  const auto theta = object.find("rope_theta");
  return theta == object.end() || !theta->is_null();
}

absl::Status ParsePositions(const json& object, SoftmaxAttentionConfig& config) {
  if (!Rotates(object)) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(config.rope, ParseRope(object, config.head_dim));
  return absl::OkStatus();
}

absl::Status ParseScale(const json& object, SoftmaxAttentionConfig& config) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  RIVULET_ASSIGN_OR_RETURN(const double scale, NumberField(object, "softmax_scale", usual));
  if (!(scale > 0 && scale <= std::numeric_limits<float>::max())) {
    return FieldError(object, "softmax_scale", "it must be a number above 0, or null");
  }
  config.scale = static_cast<float>(scale);
  return absl::OkStatus();
}

absl::Status ParseEps(const json& object, SoftmaxAttentionConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(const double eps, NumberField(object, "norm_eps", 1e-6));
  if (!(eps >= 0 && eps <= 1)) return FieldError(object, "norm_eps", "must be from 0 to 1");
  config.norm_eps = static_cast<float>(eps);
  return absl::OkStatus();
}

// fla's true means its RMSNorm as it stands, whose eps no key changes.
absl::Status ParseNorm(const json& object, SoftmaxAttentionConfig& config) {
  if (HasField(object, "qk_norm") && object.find("qk_norm")->is_boolean()) {
    RIVULET_ASSIGN_OR_RETURN(const bool norm, BoolField(object, "qk_norm", false));
    config.qk_norm = norm ? HeadNorm::kRms : HeadNorm::kNone;
    config.norm_eps = 1e-5f;
    return absl::OkStatus();
  }
  constexpr HeadNorm kNorms[] = {HeadNorm::kNone, HeadNorm::kRms, HeadNorm::kRmsOnePlus};
  RIVULET_ASSIGN_OR_RETURN(const size_t norm,
                           ChoiceField(object, "qk_norm", "none", {"none", "rms", "rms_one_plus"}));
  config.qk_norm = kNorms[norm];
  return ParseEps(object, config);
}

}  // namespace

absl::StatusOr<SoftmaxAttentionConfig> ParseSoftmaxAttentionConfig(const json& object,
                                                                   size_t hidden) {
  SoftmaxAttentionConfig config;
  RIVULET_RETURN_IF_ERROR(ParseSizes(object, hidden, config));
  RIVULET_RETURN_IF_ERROR(ParsePositions(object, config));
  RIVULET_RETURN_IF_ERROR(ParseScale(object, config));
  RIVULET_RETURN_IF_ERROR(ParseNorm(object, config));
  RIVULET_ASSIGN_OR_RETURN(config.qkv_bias, BoolField(object, "qkv_bias", false));
  RIVULET_ASSIGN_OR_RETURN(config.output_bias, BoolField(object, "output_bias", false));
  RIVULET_ASSIGN_OR_RETURN(config.output_gate, BoolField(object, "output_gate", false));
  return config;
}

}  // namespace rivulet
