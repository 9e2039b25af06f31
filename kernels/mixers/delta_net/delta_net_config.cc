// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_net_config.h"

#include "kernels/base/status.h"
#include "kernels/mixers/fla_heads.h"
#include "kernels/mixers/json_fields.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

absl::Status ParseSizes(const nlohmann::json& json, size_t hidden, DeltaRuleShape& shape) {
  RIVULET_ASSIGN_OR_RETURN(const FlaHeads heads, ParseFlaHeads(json, hidden, 1.0, 1.0, 16));
  shape.key_heads = shape.value_heads = heads.heads;
  shape.key_dim = heads.key_dim;
  shape.value_dim = heads.value_dim;
  return CheckKeyWidth(heads);
}

absl::Status ParseQueriesAndKeys(const nlohmann::json& json, DeltaRuleConfig& config) {
  constexpr Activation kActivations[] = {Activation::kSilu, Activation::kRelu,
                                         Activation::kEluPlusOne, Activation::kIdentity};
  RIVULET_ASSIGN_OR_RETURN(
      const size_t activation,
      ChoiceField(json, "qk_activation", "silu", {"silu", "relu", "elu", "identity"}));
  config.qk_activation = kActivations[activation];
  RIVULET_ASSIGN_OR_RETURN(const size_t norm, ChoiceField(json, "qk_norm", "l2", {"l2", "sum"}));
  config.qk_sum_norm = norm == 1;
  return absl::OkStatus();
}

// A state forgets its rounding errors along its keys alone: not where β = 2 makes a transition a
// reflection, and too slowly with the short keys of the sum norm (NOTES.md).
absl::Status CheckStateDType(const nlohmann::json& json, const DeltaRuleConfig& config) {
  if (config.shape.state_dtype == DType::kFloat32) return absl::OkStatus();
  constexpr char kRemedy[] =
      "a bf16 state would gather rounding errors that are never overwritten; use --state-dtype "
      "fp32";
  if (config.negative_eigenvalues) return FieldError(json, "allow_neg_eigval", kRemedy);
  if (config.qk_sum_norm) return FieldError(json, "qk_norm", kRemedy);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeltaRuleConfig> ParseDeltaNetConfig(const nlohmann::json& json, size_t hidden,
                                                    const MixerOptions& options) {
  DeltaRuleConfig config;
  config.shape.state_dtype = options.state_dtype;
  RIVULET_RETURN_IF_ERROR(ParseSizes(json, hidden, config.shape));
  RIVULET_RETURN_IF_ERROR(ParseQueriesAndKeys(json, config));
  RIVULET_ASSIGN_OR_RETURN(config.learned_beta, BoolField(json, "use_beta", true));
  RIVULET_ASSIGN_OR_RETURN(config.use_gate, BoolField(json, "use_gate", false));
  RIVULET_RETURN_IF_ERROR(ParseDeltaRuleKeys(json, config));
  RIVULET_RETURN_IF_ERROR(CheckStateDType(json, config));
  return config;
}

}  // namespace rivulet
