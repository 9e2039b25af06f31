// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/hla_config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/rope_config.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxHeads = 1024;

// A finite number in [low, high].
absl::StatusOr<float> FiniteField(const Json& config, std::string_view key, double otherwise,
                                  double low, double high) {
  RIVULET_ASSIGN_OR_RETURN(const double value, NumberField(config, key, otherwise));
  if (value >= low && value <= high) return static_cast<float>(value);
  return FieldError(config, key, absl::StrCat("give a number from ", low, " to ", high));
}

absl::Status ReadHeads(const Json& config, size_t hidden, HigherOrderShape& shape) {
  RIVULET_ASSIGN_OR_RETURN(shape.heads, SizeField(config, "num_heads", std::nullopt, 1, kMaxHeads));
  RIVULET_ASSIGN_OR_RETURN(shape.kv_heads,
                           SizeField(config, "num_kv_heads", shape.heads, 1, kMaxHeads));
  if (shape.heads % shape.kv_heads != 0) {
    return FieldError(config, "num_kv_heads",
                      absl::StrCat("it must divide num_heads = ", shape.heads));
  }
  const size_t usual = std::max<size_t>(1, hidden / shape.heads);
  RIVULET_ASSIGN_OR_RETURN(shape.key_dim, SizeField(config, "head_dim", usual, 1, kMaxKeyDim));
  if (shape.key_dim > kMaxKeyDim) {
    return FieldError(config, "head_dim",
                      absl::StrCat("hidden_size / num_heads = ", shape.key_dim,
                                   ", but heads wider than ", kMaxKeyDim, " are not served"));
  }
  RIVULET_ASSIGN_OR_RETURN(const float expand,
                           FiniteField(config, "expand_v", 1.0, 0.0, kMaxKeyDim));
  const float value_dim = std::floor(static_cast<float>(shape.key_dim) * expand);
  if (value_dim < 1 || value_dim > kMaxKeyDim) {
    return FieldError(
        config, "expand_v",
        absl::StrCat("head_dim * expand_v = ", value_dim, " must be from 1 to ", kMaxKeyDim));
  }
  shape.value_dim = static_cast<size_t>(value_dim);
  return absl::OkStatus();
}

// Which forms a variant has. AHLA has one, and reads over the key.
absl::Status CheckForm(const Json& config, const HlaConfig& result) {
  const bool third = result.variant == HlaVariant::kThird;
  if (third && (result.form == HlaForm::kSerial || result.form == HlaForm::kUnmasked)) {
    return FieldError(config, "hla_form", "the third order has the forms masked and paper");
  }
  if (!third && result.form == HlaForm::kPaper) {
    return FieldError(config, "hla_form",
                      "only hla_variant third has it; the second order's are masked, serial, none");
  }
  return absl::OkStatus();
}

absl::Status ReadForm(const Json& config, HlaConfig& result) {
  RIVULET_ASSIGN_OR_RETURN(const size_t variant, ChoiceField(config, "hla_variant", "symmetric",
                                                             {"symmetric", "asymmetric", "third"}));
  result.variant = static_cast<HlaVariant>(variant);
  RIVULET_ASSIGN_OR_RETURN(const size_t form, ChoiceField(config, "hla_form", "masked",
                                                          {"masked", "serial", "none", "paper"}));
  result.form = static_cast<HlaForm>(form);
  return CheckForm(config, result);
}

absl::Status ReadRecurrence(const Json& config, HlaConfig& result) {
  RIVULET_RETURN_IF_ERROR(ReadForm(config, result));
  RIVULET_ASSIGN_OR_RETURN(result.use_decay, BoolField(config, "use_decay", false));
  RIVULET_ASSIGN_OR_RETURN(result.ridge_lambda, FiniteField(config, "ridge_lambda", 0.0, 0.0, 1e6));
  if (result.variant != HlaVariant::kSymmetric && result.ridge_lambda != 0.0f) {
    return FieldError(config, "ridge_lambda",
                      "only the symmetric variant has a ridge; leave it out");
  }
  RIVULET_ASSIGN_OR_RETURN(result.shape.normalize, BoolField(config, "normalize", false));
  RIVULET_ASSIGN_OR_RETURN(result.shape.denom_eps,
                           FiniteField(config, "denom_eps", 1e-6, 0.0, 1.0));
  return absl::OkStatus();
}

// The format does not say where q and k are rotated, and without an activation it does not matter:
// rotation, l2 norm and scale commute. After elu1 or relu it would, and numbers would turn
// negative.
absl::Status ReadRope(const Json& config, HlaConfig& result) {
  if (!HasField(config, "rope_theta")) return absl::OkStatus();
  if (result.qk_activation != Activation::kIdentity) {
    return FieldError(config, "rope_theta",
                      "rotated queries and keys are not non-negative; use qk_activation none or "
                      "rope_theta null");
  }
  RIVULET_ASSIGN_OR_RETURN(result.rope, ParseRope(config, result.shape.key_dim));
  return absl::OkStatus();
}

absl::Status ReadQueriesAndKeys(const Json& config, HlaConfig& result) {
  constexpr Activation kActivations[] = {Activation::kIdentity, Activation::kEluPlusOne,
                                         Activation::kRelu};
  RIVULET_ASSIGN_OR_RETURN(const size_t activation,
                           ChoiceField(config, "qk_activation", "none", {"none", "elu1", "relu"}));
  result.qk_activation = kActivations[activation];
  RIVULET_ASSIGN_OR_RETURN(const size_t norm,
                           ChoiceField(config, "qk_norm", "none", {"none", "l2"}));
  result.qk_l2_norm = norm == 1;
  const double usual = 1.0 / std::sqrt(static_cast<double>(result.shape.key_dim));
  RIVULET_ASSIGN_OR_RETURN(result.qk_scale, FiniteField(config, "qk_scale", usual, 1e-6, 1e6));
  return ReadRope(config, result);
}

absl::Status ReadConvolution(const Json& config, HlaConfig& result) {
  RIVULET_ASSIGN_OR_RETURN(const bool used, BoolField(config, "use_short_conv", false));
  RIVULET_ASSIGN_OR_RETURN(const bool bias, BoolField(config, "conv_bias", false));
  if (!used) return absl::OkStatus();
  if (bias) {
    return FieldError(config, "conv_bias",
                      "the short convolutions of hla have no bias; leave it out");
  }
  RIVULET_ASSIGN_OR_RETURN(result.conv_size, SizeField(config, "conv_size", 4, 2, kFoldInterval));
  return absl::OkStatus();
}

// A sum that only grows stops moving in bf16: sixteen tokens weigh less than half a unit in the
// last place of what lies there (docs/architecture.md#bit-equality). S = Σ kᵀk grows on its
// diagonal whatever the keys' signs: its outputs are 28 % off after 16k tokens (NOTES.md).
absl::Status CheckStateDType(const Json& config, const HlaConfig& result) {
  if (result.shape.state_dtype != DType::kFloat32 && result.form == HlaForm::kPaper) {
    return FieldError(config, "hla_form",
                      "it subtracts sums that nearly cancel, which a bf16 state cannot hold; use "
                      "--state-dtype fp32");
  }
  const bool grows =
      result.variant != HlaVariant::kAsymmetric || result.qk_activation != Activation::kIdentity;
  if (result.shape.state_dtype == DType::kFloat32 || result.use_decay || !grows) {
    return absl::OkStatus();
  }
  return FieldError(config, "use_decay",
                    "sums that only grow stop moving in a bf16 state; use --state-dtype fp32");
}

}  // namespace

absl::StatusOr<HlaConfig> ParseHlaConfig(const Json& config, size_t hidden,
                                         const MixerOptions& options) {
  HlaConfig result;
  result.shape.state_dtype = options.state_dtype;
  RIVULET_RETURN_IF_ERROR(ReadHeads(config, hidden, result.shape));
  RIVULET_RETURN_IF_ERROR(ReadRecurrence(config, result));
  RIVULET_RETURN_IF_ERROR(ReadQueriesAndKeys(config, result));
  RIVULET_RETURN_IF_ERROR(ReadConvolution(config, result));
  RIVULET_ASSIGN_OR_RETURN(result.use_output_gate, BoolField(config, "use_output_gate", true));
  RIVULET_ASSIGN_OR_RETURN(result.norm_eps, FiniteField(config, "norm_eps", 1e-5, 0.0, 1.0));
  RIVULET_RETURN_IF_ERROR(CheckStateDType(config, result));
  return result;
}

}  // namespace rivulet
