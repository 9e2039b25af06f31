// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// The width of one of `heads` heads that share int(hidden · expansion) columns.
size_t HeadWidth(ConfigReader& config, std::string_view key, double otherwise, size_t hidden,
                 size_t heads) {
  const double columns = std::floor(static_cast<double>(hidden) * config.Number(key, otherwise));
  const bool sensible = columns >= 1 && columns <= static_cast<double>(kLargestSize);
  if (sensible && static_cast<size_t>(columns) % heads == 0) {
    return static_cast<size_t>(columns) / heads;
  }
  const std::string remedy =
      absl::StrCat("hidden_size ", hidden, " times it must be a multiple of num_heads ", heads,
                   " from 1 to ", kLargestSize);
  if (config.Has(key)) {
    config.Fail(key, remedy);
  } else {
    config.Fail(absl::StrCat(ToAbsl(key), " is absent and so ", otherwise, ": ", remedy));
  }
  return 1;
}

}  // namespace

FlaHeads ReadFlaHeads(ConfigReader& config, size_t hidden, const FlaHeadDefaults& defaults) {
  FlaHeads heads;
  heads.heads = config.Size("num_heads", defaults.heads);
  heads.kv_heads = config.Size("num_kv_heads", heads.heads);
  config.RequireDivides(heads.kv_heads, "num_kv_heads", "num_heads", heads.heads);
  heads.key_dim = HeadWidth(config, "expand_k", defaults.expand_k, hidden, heads.heads);
  heads.value_dim = HeadWidth(config, "expand_v", defaults.expand_v, hidden, heads.heads);
  if (heads.key_dim > kMaxKeyDim && !defaults.any_key_width) {
    config.Fail(absl::StrCat("heads of key width ", heads.key_dim, " are wider than ", kMaxKeyDim,
                             ": use more heads (num_heads) or a smaller expand_k"));
  }
  return heads;
}

size_t ReadKeyDim(ConfigReader& config, size_t hidden, size_t heads) {
  const size_t key_dim =
      config.Size("head_dim", std::max<size_t>(1, hidden / heads), 1, kMaxKeyDim);
  config.Require(key_dim <= kMaxKeyDim, "head_dim",
                 absl::StrCat("hidden_size / num_heads = ", key_dim, ", but heads wider than ",
                              kMaxKeyDim, " are not served"));
  return key_dim;
}

size_t ReadInner(ConfigReader& config, size_t hidden) {
  const double inner = std::floor(config.Number("expand", 2.0) * static_cast<double>(hidden));
  if (inner >= 1 && inner <= static_cast<double>(kLargestSize)) return static_cast<size_t>(inner);
  config.Fail("expand",
              absl::StrCat("hidden_size ", hidden, " times it must be from 1 to ", kLargestSize));
  return 0;
}

FlaOutput ReadFlaOutput(ConfigReader& config) {
  FlaOutput output;
  output.gate = config.Bool("use_output_gate", true);
  const bool fuse_norm = config.Bool("fuse_norm", true);
  const bool swish = config.Choice<bool>("hidden_act", "swish", {{"swish", true}, {"silu", false}});
  output.norm_name = fuse_norm && output.gate && swish ? "g_norm_swish_gate" : "g_norm";
  output.affine = config.Bool("elementwise_affine", true);
  output.norm_eps = config.Eps("norm_eps", 1e-6);
  return output;
}

Activation ReadFlaFeatureMap(ConfigReader& config) {
  return config.Choice<Activation>("feature_map", "identity",
                                   {{"identity", Activation::kIdentity},
                                    {"relu", Activation::kRelu},
                                    {"sigmoid", Activation::kSigmoid},
                                    {"silu", Activation::kSilu},
                                    {"swish", Activation::kSilu}});
}

size_t ReadConvSize(ConfigReader& config) {
  return config.Size("conv_size", 4, 2, kMaxConvolutionWindow);
}

}  // namespace rivulet
