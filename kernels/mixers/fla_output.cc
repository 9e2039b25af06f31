// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/fla_output.h"

#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "nlohmann/json.hpp"

namespace rivulet {

absl::StatusOr<FlaOutput> ParseFlaOutput(const nlohmann::json& json) {
  FlaOutput output;
  RIVULET_ASSIGN_OR_RETURN(output.gate, BoolField(json, "use_output_gate", true));
  RIVULET_ASSIGN_OR_RETURN(const bool fuse_norm, BoolField(json, "fuse_norm", true));
  RIVULET_ASSIGN_OR_RETURN(const size_t act,
                           ChoiceField(json, "hidden_act", "swish", {"swish", "silu"}));
  const bool fused = fuse_norm && output.gate && act == 0;
  output.norm_name = fused ? "g_norm_swish_gate" : "g_norm";
  RIVULET_ASSIGN_OR_RETURN(output.affine, BoolField(json, "elementwise_affine", true));
  RIVULET_ASSIGN_OR_RETURN(output.norm_eps, EpsField(json, "norm_eps", 1e-6));
  return output;
}

}  // namespace rivulet
