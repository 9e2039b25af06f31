// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_config.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "kernels/recurrence/state.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using Json = nlohmann::json;

// One setting: transformers' key, then the others' spellings of it. `object` is the one that has
// it.
struct Setting {
  const Json* object;
  std::string_view key;
};

// state-spaces keeps the mixer's keys in an object of their own, ssm_cfg.
Setting FindSetting(const Json& json, std::initializer_list<std::string_view> spellings) {
  const Json* objects[] = {&json, HasField(json, "ssm_cfg") ? &json["ssm_cfg"] : nullptr};
  for (const Json* object : objects) {
    for (const std::string_view key : spellings) {
      if (object != nullptr && HasField(*object, key)) return {object, key};
    }
  }
  return {&json, *spellings.begin()};
}

absl::StatusOr<size_t> Size(const Json& json, std::initializer_list<std::string_view> spellings,
                            size_t otherwise, size_t minimum = 1, size_t maximum = kLargestSize) {
  const Setting setting = FindSetting(json, spellings);
  return SizeField(*setting.object, setting.key, otherwise, minimum, maximum);
}

absl::StatusOr<bool> Bool(const Json& json, std::initializer_list<std::string_view> spellings,
                          bool otherwise) {
  const Setting setting = FindSetting(json, spellings);
  return BoolField(*setting.object, setting.key, otherwise);
}

// num_heads may be left to expand · hidden_size / head_dim; where both are given they must agree.
absl::Status ParseHeads(const Json& json, size_t hidden, Mamba2Config& config) {
  RIVULET_ASSIGN_OR_RETURN(config.head_dim, Size(json, {"head_dim", "headdim"}, 64));
  const Setting heads = FindSetting(json, {"num_heads", "nheads"});
  const Setting expand = FindSetting(json, {"expand"});
  RIVULET_ASSIGN_OR_RETURN(const double factor, NumberField(*expand.object, expand.key, 2.0));
  const double inner = std::floor(factor * static_cast<double>(hidden));
  if (!(inner >= 1 && inner <= static_cast<double>(kLargestSize))) {
    return FieldError(
        *expand.object, expand.key,
        absl::StrCat("hidden_size ", hidden, " times it must be from 1 to ", kLargestSize));
  }
  const size_t derived = static_cast<size_t>(inner) / config.head_dim;
  RIVULET_ASSIGN_OR_RETURN(config.heads, SizeField(*heads.object, heads.key, derived));
  const bool heads_alone =
      HasField(*heads.object, heads.key) && !HasField(*expand.object, expand.key);
  if (heads_alone || config.inner() == static_cast<size_t>(inner)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "num_heads ", config.heads, " times head_dim ", config.head_dim, " must be expand ", factor,
      " times hidden_size ", hidden, ": correct the one that is wrong"));
}

absl::Status ParseSizes(const Json& json, size_t hidden, Mamba2Config& config) {
  RIVULET_RETURN_IF_ERROR(ParseHeads(json, hidden, config));
  RIVULET_ASSIGN_OR_RETURN(config.state_size,
                           Size(json, {"state_size", "d_state"}, 128, 1, kMaxKeyDim));
  RIVULET_ASSIGN_OR_RETURN(config.groups, Size(json, {"n_groups", "ngroups"}, 1));
  if (config.heads % config.groups != 0) {
    const Setting groups = FindSetting(json, {"n_groups", "ngroups"});
    return FieldError(*groups.object, groups.key,
                      absl::StrCat("must divide num_heads ", config.heads, " without remainder"));
  }
  RIVULET_ASSIGN_OR_RETURN(config.conv_kernel,
                           Size(json, {"conv_kernel", "d_conv"}, 4, 2, kFoldInterval));
  return absl::OkStatus();
}

absl::Status ParseSwitches(const Json& json, Mamba2Config& config) {
  RIVULET_ASSIGN_OR_RETURN(config.use_bias, Bool(json, {"use_bias", "bias"}, false));
  RIVULET_ASSIGN_OR_RETURN(config.use_conv_bias, Bool(json, {"use_conv_bias", "conv_bias"}, true));
  RIVULET_ASSIGN_OR_RETURN(config.skip_by_channel, Bool(json, {"D_has_hdim"}, false));
  // Not rms_norm: in a state-spaces file that is the norm between layers, and transformers reads it
  // and normalises all the same.
  RIVULET_ASSIGN_OR_RETURN(config.use_norm, Bool(json, {"rmsnorm"}, true));
  RIVULET_ASSIGN_OR_RETURN(config.norm_before_gate, Bool(json, {"norm_before_gate"}, false));
  RIVULET_ASSIGN_OR_RETURN(config.full_norm, Bool(json, {"full_norm"}, false));
  const Setting eps = FindSetting(json, {"layer_norm_epsilon", "norm_eps"});
  RIVULET_ASSIGN_OR_RETURN(config.norm_eps, EpsField(*eps.object, eps.key, 1e-5));
  return absl::OkStatus();
}

absl::Status ParseLimit(const Json& json, Mamba2Config& config) {
  const Setting limit = FindSetting(json, {"time_step_limit", "dt_limit"});
  if (!HasField(*limit.object, limit.key)) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const std::vector<double> bounds,
                           NumberListField(*limit.object, limit.key));
  if (bounds.size() != 2 || !(bounds[0] >= 0 && bounds[0] <= bounds[1])) {
    return FieldError(*limit.object, limit.key,
                      "must be [low, high] with 0 <= low <= high, such as [0.0, Infinity]");
  }
  config.delta_low = static_cast<float>(bounds[0]);
  config.delta_high = static_cast<float>(bounds[1]);
  return absl::OkStatus();
}

absl::Status CheckActivation(const Json& json) {
  return ChoiceField(json, "hidden_act", "silu", {"silu", "swish"}).status();
}

}  // namespace

absl::StatusOr<Mamba2Config> ParseMamba2Config(const nlohmann::json& json, size_t hidden) {
  Mamba2Config config;
  RIVULET_RETURN_IF_ERROR(ParseSizes(json, hidden, config));
  RIVULET_RETURN_IF_ERROR(ParseSwitches(json, config));
  RIVULET_RETURN_IF_ERROR(ParseLimit(json, config));
  RIVULET_RETURN_IF_ERROR(CheckActivation(json));
  return config;
}

}  // namespace rivulet
