// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba/mamba_config.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

absl::Status ParseInner(const Json& json, size_t hidden, MambaConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(const double expand, NumberField(json, "expand", 2.0));
  const double inner = std::floor(expand * static_cast<double>(hidden));
  if (!(inner >= 1 && inner <= static_cast<double>(kLargestSize))) {
    return FieldError(
        json, "expand",
        absl::StrCat("hidden_size ", hidden, " times it must be from 1 to ", kLargestSize));
  }
  config.inner = static_cast<size_t>(inner);
  return absl::OkStatus();
}

// "auto" is hidden_size / 16, rounded up.
absl::Status ParseRank(const Json& json, size_t hidden, MambaConfig& config) {
  config.rank = (hidden + 15) / 16;
  if (HasField(json, "time_step_rank") && json["time_step_rank"] == "auto") {
    return absl::OkStatus();
  }
  if (HasField(json, "time_step_rank") && json["time_step_rank"].is_string()) {
    return FieldError(json, "time_step_rank", "it must be \"auto\" or a whole number");
  }
  RIVULET_ASSIGN_OR_RETURN(config.rank, SizeField(json, "time_step_rank", config.rank));
  return absl::OkStatus();
}

absl::Status ParseScanNorms(const Json& json, MambaConfig& config) {
  config.use_scan_norms = HasField(json, "mixer_rms_eps");
  if (!config.use_scan_norms) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(config.scan_norm_eps, EpsField(json, "mixer_rms_eps", std::nullopt));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MambaConfig> ParseMambaConfig(const nlohmann::json& json, size_t hidden) {
  MambaConfig config;
  RIVULET_RETURN_IF_ERROR(ParseInner(json, hidden, config));
  RIVULET_RETURN_IF_ERROR(ParseRank(json, hidden, config));
  RIVULET_ASSIGN_OR_RETURN(config.state_size, SizeField(json, "state_size", 16, 1, kMaxKeyDim));
  RIVULET_ASSIGN_OR_RETURN(config.conv_kernel, SizeField(json, "conv_kernel", 4, 2, kFoldInterval));
  RIVULET_ASSIGN_OR_RETURN(config.use_bias, BoolField(json, "use_bias", false));
  RIVULET_ASSIGN_OR_RETURN(config.use_conv_bias, BoolField(json, "use_conv_bias", true));
  RIVULET_RETURN_IF_ERROR(ParseScanNorms(json, config));
  RIVULET_RETURN_IF_ERROR(ChoiceField(json, "hidden_act", "silu", {"silu", "swish"}).status());
  return config;
}

}  // namespace rivulet
