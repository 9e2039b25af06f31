// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// DeltaNet, Gated DeltaNet and its log-linear form in fla's keys.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence/fenwick.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

void ReadSharedKeys(ConfigReader& config, DeltaRuleConfig& delta) {
  delta.negative_eigenvalues = config.Bool("allow_neg_eigval", false);
  const bool bias = config.Bool("conv_bias", false);
  if (config.Bool("use_short_conv", true)) {
    delta.conv_size = ReadConvSize(config);
    delta.conv_bias = bias;
  }
  delta.norm_eps = config.Eps("norm_eps", 1e-6);
}

// value_head_dim, or head_dim · expand_v, which must be whole.
size_t ReadValueWidth(ConfigReader& config, size_t key_dim) {
  if (config.Has("value_head_dim")) return config.Size("value_head_dim");
  const double exact = static_cast<double>(key_dim) * config.Number("expand_v", 2.0);
  const double width = std::round(exact);
  // The tolerance is fla's.
  const bool whole = width >= 1 && width <= static_cast<double>(kLargestSize) &&
                     std::abs(width - exact) <= 1e-5 * width;
  config.Require(whole, "expand_v",
                 absl::StrCat("head_dim ", key_dim, " times it (2 when it is missing) must be a ",
                              "whole number from 1 to ", kLargestSize));
  return whole ? static_cast<size_t>(width) : 1;
}

}  // namespace

void CheckDeltaRuleColumns(ConfigReader& config, std::string_view key, size_t heads, size_t width) {
  config.Require(heads <= kLargestSize / width, key,
                 absl::StrCat("such heads of width ", width, " are more than ", kLargestSize,
                              " columns: use fewer or narrower ones"));
}

DeltaRuleConfig ParseDeltaNet(ConfigReader& config, size_t hidden) {
  DeltaRuleConfig delta;
  const FlaHeads heads = ReadFlaHeads(config, hidden, {.heads = 16});
  delta.shape.groups = delta.shape.heads = heads.heads;
  delta.shape.key_dim = heads.key_dim;
  delta.shape.value_dim = heads.value_dim;
  delta.qk_activation = config.Choice<Activation>("qk_activation", "silu",
                                                  {{"silu", Activation::kSilu},
                                                   {"relu", Activation::kRelu},
                                                   {"elu", Activation::kEluPlusOne},
                                                   {"identity", Activation::kIdentity}});
  delta.qk_sum_norm = config.Choice<bool>("qk_norm", "l2", {{"l2", false}, {"sum", true}});
  delta.learned_beta = config.Bool("use_beta", true);
  delta.use_gate = config.Bool("use_gate", false);
  ReadSharedKeys(config, delta);
  return delta;
}

DeltaRuleConfig ParseGatedDeltaNet(ConfigReader& config, size_t /*hidden*/) {
  DeltaRuleConfig delta;
  HeadShape& shape = delta.shape;
  delta.decays = true;
  shape.groups = config.Size("num_heads", 6);
  shape.heads = config.Size("num_v_heads", shape.groups);
  config.Require(shape.heads % shape.groups == 0, "num_v_heads",
                 absl::StrCat("it must be a multiple of num_heads ", shape.groups));
  shape.key_dim = config.Size("head_dim", 256, 1, kMaxKeyDim);
  shape.value_dim = ReadValueWidth(config, shape.key_dim);
  CheckDeltaRuleColumns(config, "num_heads", shape.groups, shape.key_dim);
  CheckDeltaRuleColumns(config, config.Spelling({"num_v_heads", "num_heads"}), shape.heads,
                        shape.value_dim);
  delta.use_gate = config.Bool("use_gate", true);
  ReadSharedKeys(config, delta);
  return delta;
}

// The public code scales queries by D^{-1/2} and level weights by its inverse, so neither is.
DeltaRuleConfig ParseLogLinearGatedDeltaNet(ConfigReader& config, size_t hidden) {
  DeltaRuleConfig delta = ParseGatedDeltaNet(config, hidden);
  delta.scale_queries = false;
  config.Require(delta.shape.group() == 1, "num_v_heads",
                 "log-linear Gated DeltaNet has no grouped value heads: leave it out");
  delta.log_linear = true;
  delta.max_levels = static_cast<uint32_t>(config.Size("max_levels", 0, 1, kMaxLevels));
  return delta;
}

}  // namespace rivulet
