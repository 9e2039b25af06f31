// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"

#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json.hpp"

namespace rivulet {

absl::Status ParseDeltaRuleKeys(const nlohmann::json& json, DeltaRuleConfig& config) {
  RIVULET_ASSIGN_OR_RETURN(config.negative_eigenvalues, BoolField(json, "allow_neg_eigval", false));
  RIVULET_ASSIGN_OR_RETURN(const bool convolution, BoolField(json, "use_short_conv", true));
  RIVULET_ASSIGN_OR_RETURN(const bool bias, BoolField(json, "conv_bias", false));
  if (convolution) {
    RIVULET_ASSIGN_OR_RETURN(config.conv_size, SizeField(json, "conv_size", 4, 2, kFoldInterval));
    config.conv_bias = bias;
  }
  RIVULET_ASSIGN_OR_RETURN(config.norm_eps, EpsField(json, "norm_eps", 1e-6));
  return absl::OkStatus();
}

}  // namespace rivulet
