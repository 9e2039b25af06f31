// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// head_dim · expand_v, which must be whole.
size_t ValueWidth(ConfigReader& config, size_t key_dim) {
  const double exact = static_cast<double>(key_dim) * config.Number("expand_v", 1.0, 1e-3, 64.0);
  const double width = std::round(exact);
  config.Require(width >= 1 && std::abs(width - exact) <= 1e-5 * width, "expand_v",
                 absl::StrCat("head_dim ", key_dim, " times it must be a whole number"));
  return width >= 1 ? static_cast<size_t>(width) : 1;
}

}  // namespace

KdaConfig ParseKda(ConfigReader& config, size_t /*hidden*/) {
  KdaConfig kda;
  HeadShape& shape = kda.shape;
  shape.groups = config.Size("num_heads", 16);
  shape.heads = config.Size("num_v_heads", shape.groups);
  config.Require(shape.heads % shape.groups == 0, "num_v_heads",
                 absl::StrCat("it must be a multiple of num_heads ", shape.groups));
  shape.key_dim = config.Size("head_dim", 128, 1, kMaxKeyDim);
  shape.value_dim = kda.gate_rank = ValueWidth(config, shape.key_dim);
  const std::string_view heads = config.Spelling({"num_v_heads", "num_heads"});
  CheckDeltaRuleColumns(config, heads, shape.heads, shape.key_dim);
  CheckDeltaRuleColumns(config, heads, shape.heads, shape.value_dim);
  if (config.Bool("use_short_conv", true)) kda.conv_size = ReadConvSize(config);
  kda.negative_eigenvalues = config.Bool("allow_neg_eigval", false);
  if (config.Has("lower_bound")) {
    kda.lower_bound = static_cast<float>(config.Number("lower_bound", -5.0, -1e3, -1e-6));
  }
  kda.norm_eps = config.Eps("norm_eps", 1e-6);
  config.Require(!config.Has("attnres_block_size"), "attnres_block_size",
                 "attention over residuals is not served; use a model without it");
  return kda;
}

}  // namespace rivulet
