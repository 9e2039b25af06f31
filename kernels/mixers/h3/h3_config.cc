// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/h3/h3_config.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// The state grows with head_dim · hidden.
constexpr size_t kMaxHeadDim = 64;

}  // namespace

absl::StatusOr<H3Config> ParseH3Config(const nlohmann::json& json, size_t hidden) {
  H3Config config;
  RIVULET_ASSIGN_OR_RETURN(config.head_dim, SizeField(json, "head_dim", 1, 1, kMaxHeadDim));
  if (hidden % config.head_dim != 0) {
    return FieldError(json, "head_dim",
                      absl::StrCat("must divide hidden_size ", hidden, " without remainder"));
  }
  config.heads = hidden / config.head_dim;
  RIVULET_ASSIGN_OR_RETURN(config.state_size, SizeField(json, "d_state", 64, 2, kMaxKeyDim));
  if (config.state_size % 2 != 0) {
    return FieldError(json, "d_state", "must be even: its diagonal SSM has d_state / 2 modes");
  }
  RIVULET_ASSIGN_OR_RETURN(config.ssms, SizeField(json, "n_ssm", config.heads));
  if (config.heads % config.ssms != 0) {
    return FieldError(
        json, "n_ssm",
        absl::StrCat("must divide hidden_size / head_dim, ", config.heads, ", without remainder"));
  }
  RIVULET_ASSIGN_OR_RETURN(const size_t choice,
                           ChoiceField(json, "discretization", "bilinear", {"bilinear", "zoh"}));
  config.discretisation = choice == 0 ? Discretisation::kBilinear : Discretisation::kZeroOrderHold;
  return config;
}

}  // namespace rivulet
