// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// Performer divides queries and keys by d^{1/4} each, so that their product is over √d.
FeatureMapConfig ReadFeatureMap(ConfigReader& config, size_t width) {
  FeatureMapConfig map;
  map.width = width;
  map.kind =
      config.Choice<FeatureMapKind>("feature_map", "elementwise_product",
                                    {{"elementwise_product", FeatureMapKind::kElementwiseProduct},
                                     {"elu", FeatureMapKind::kElu},
                                     {"hedgehog", FeatureMapKind::kHedgehog},
                                     {"t2r", FeatureMapKind::kT2r},
                                     {"dpfp", FeatureMapKind::kDpfp},
                                     {"relu", FeatureMapKind::kRelu},
                                     {"identity", FeatureMapKind::kIdentity},
                                     {"random_relu", FeatureMapKind::kRandomRelu},
                                     {"random_exp", FeatureMapKind::kRandomExp}});
  if (map.kind != FeatureMapKind::kRandomRelu && map.kind != FeatureMapKind::kRandomExp) return map;
  map.random_features = config.Size("num_random_features", std::nullopt, 1, kMaxKeyDim);
  map.bias = config.Bool("feature_map_bias", false);
  const double usual = std::pow(static_cast<double>(width), -0.25);
  map.input_scale = config.Float("feature_map_input_scale", usual, 1e-6, 1e6);
  map.offset = config.Float("feature_map_offset", 1e-3, 0.0, 1e6);
  return map;
}

}  // namespace

LinearAttentionConfig ParseLinearAttention(ConfigReader& config, size_t hidden) {
  LinearAttentionConfig linear;
  const FlaHeads heads = ReadFlaHeads(config, hidden, {.any_key_width = true});
  linear.heads = heads.heads;
  linear.kv_heads = heads.kv_heads;
  linear.key_dim = heads.key_dim;
  linear.value_dim = heads.value_dim;
  linear.feature_map = ReadFeatureMap(config, linear.key_dim);
  const size_t features = FeatureCount(linear.feature_map);
  if (features > kMaxKeyDim) {
    config.Fail(absl::StrCat("heads of width ", linear.key_dim, " have ", features,
                             " features with this feature_map, more than ", kMaxKeyDim,
                             ": use more heads (num_heads) or a smaller expand_k"));
  }
  linear.tie_feature_map = config.Bool("tie_feature_map_qk", false);
  linear.norm_q = config.Bool("norm_q", false);
  linear.norm_k = config.Bool("norm_k", false);
  linear.normalised = config.Bool("norm_feature_map", false);
  linear.affine = config.Bool("elementwise_affine", true);
  linear.norm_eps = config.Eps("norm_eps", 1e-6);
  return linear;
}

}  // namespace rivulet
