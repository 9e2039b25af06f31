// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2 in the spellings of transformers, fla and state-spaces; where two are present,
// transformers' counts. Log-linear Mamba-2 has the same keys and max_levels.
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

// num_heads defaults to expand · hidden_size / head_dim; where both are given they must agree.
void ReadHeads(ConfigReader& config, size_t hidden, Mamba2Config& mamba2) {
  mamba2.head_dim = config.Size(config.Spelling({"head_dim", "headdim"}), 64);
  const size_t inner = ReadInner(config, hidden);
  if (inner == 0) return;
  const std::string_view key = config.Spelling({"num_heads", "nheads"});
  mamba2.heads = config.Size(key, inner / mamba2.head_dim);
  const bool heads_alone = config.Has(key) && !config.Has("expand");
  if (heads_alone || mamba2.inner() == inner) return;
  config.Fail(absl::StrCat("num_heads ", mamba2.heads, " times head_dim ", mamba2.head_dim,
                           " must be expand ", config.Number("expand", 2.0), " times hidden_size ",
                           hidden, ": correct the one that is wrong"));
}

void ReadGroups(ConfigReader& config, Mamba2Config& mamba2) {
  const std::string_view key = config.Spelling({"n_groups", "ngroups"});
  mamba2.groups = config.Size(key, 1);
  config.RequireDivides(mamba2.groups, key, "num_heads", mamba2.heads);
  mamba2.norm_groups = config.Size("norm_groups", mamba2.groups);
  config.Require(mamba2.norm_groups == 1 || mamba2.norm_groups == mamba2.groups, "norm_groups",
                 absl::StrCat("it must be 1 or n_groups ", mamba2.groups));
}

void ReadSwitches(ConfigReader& config, Mamba2Config& mamba2) {
  mamba2.use_bias = mamba2.output_bias = config.Bool(config.Spelling({"use_bias", "bias"}), false);
  mamba2.use_conv_bias = config.Bool(config.Spelling({"use_conv_bias", "conv_bias"}), true);
  mamba2.skip_by_channel = config.Bool("D_has_hdim", false);
  // Not rms_norm: in a state-spaces file that is the norm between layers, and transformers reads it
  // and normalises all the same.
  mamba2.use_norm = config.Bool("rmsnorm", true);
  mamba2.norm_before_gate = config.Bool("norm_before_gate", false);
  mamba2.norm_eps = config.Eps(config.Spelling({"layer_norm_epsilon", "norm_eps"}), 1e-5);
  config.Choice<bool>("hidden_act", "silu", {{"silu", true}, {"swish", true}});
}

// state-spaces keeps the mixer's keys in an object of their own, ssm_cfg; the top level's come
// first.
json WithSsmConfig(const ConfigReader& config) {
  json merged = config.object();
  const json* own = config.Find("ssm_cfg");
  if (own == nullptr || !own->is_object()) return merged;
  for (const auto& [key, value] : own->items()) {
    if (!config.Has(key)) merged[key] = value;
  }
  return merged;
}

}  // namespace

void ReadMamba2Limit(ConfigReader& config, Mamba2Config& mamba2) {
  const std::string_view key = config.Spelling({"time_step_limit", "dt_limit"});
  if (!config.Has(key)) return;
  const std::vector<double> bounds = config.Numbers(key);
  if (bounds.size() != 2 || !(bounds[0] >= 0 && bounds[0] <= bounds[1])) {
    config.Fail(key, "it must be [low, high] with 0 <= low <= high, such as [0.0, Infinity]");
    return;
  }
  mamba2.delta_low = static_cast<float>(bounds[0]);
  mamba2.delta_high = static_cast<float>(bounds[1]);
}

Mamba2Config ParseMamba2(ConfigReader& config, size_t hidden) {
  const json merged = WithSsmConfig(config);
  ConfigReader reader(merged);
  Mamba2Config mamba2;
  ReadHeads(reader, hidden, mamba2);
  ReadGroups(reader, mamba2);
  mamba2.state_size = reader.Size(reader.Spelling({"state_size", "d_state"}), 128, 1, kMaxKeyDim);
  mamba2.conv_kernel =
      reader.Size(reader.Spelling({"conv_kernel", "d_conv"}), 4, 2, kMaxConvolutionWindow);
  ReadSwitches(reader, mamba2);
  ReadMamba2Limit(reader, mamba2);
  config.Fail(reader.status());
  return mamba2;
}

// fla's kernels read B and C without a head stride, so no model has more groups.
Mamba2Config ParseLogLinearMamba2(ConfigReader& config, size_t hidden) {
  Mamba2Config mamba2 = ParseMamba2(config, hidden);
  config.Require(mamba2.groups == 1, config.Spelling({"n_groups", "ngroups"}),
                 "log-linear Mamba-2 is defined for one group: set it to 1");
  mamba2.log_linear = true;
  mamba2.max_levels = static_cast<uint32_t>(config.Size("max_levels", 0, 1, kMaxLevels));
  return mamba2;
}

}  // namespace rivulet
