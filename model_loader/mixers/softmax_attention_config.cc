// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/mixers/softmax_attention/attend_span.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// fla's and transformers' default: without head_dim the heads share the hidden size.
size_t ReadHeadDim(ConfigReader& config, size_t hidden, size_t heads) {
  config.Require(config.Has("head_dim") || hidden % heads == 0, "num_heads",
                 absl::StrCat("it must divide hidden_size ", hidden, " where head_dim is absent"));
  const size_t head_dim = config.Size("head_dim", hidden / heads);
  CheckAttentionHeadDim(config, head_dim);
  return head_dim;
}

// fla's true means its RMSNorm as it stands, whose eps no key changes.
void ReadNorm(ConfigReader& config, SoftmaxAttentionConfig& attention) {
  const nlohmann::json* norm = config.Find("qk_norm");
  if (norm != nullptr && norm->is_boolean()) {
    attention.qk_norm = norm->get<bool>() ? HeadNorm::kRms : HeadNorm::kNone;
    attention.norm_eps = 1e-5f;
    return;
  }
  attention.qk_norm = config.Choice<HeadNorm>("qk_norm", "none",
                                              {{"none", HeadNorm::kNone},
                                               {"rms", HeadNorm::kRms},
                                               {"rms_one_plus", HeadNorm::kRmsOnePlus}});
  attention.norm_eps = config.Float("norm_eps", 1e-6, 0, 1);
}

}  // namespace

void CheckAttentionHeadDim(ConfigReader& config, size_t head_dim) {
  if (head_dim >= 1 && head_dim <= kMostAttentionHeadDim) return;
  config.Fail(absl::StrCat("heads of ", head_dim, " numbers are not served, only 1 to ",
                           kMostAttentionHeadDim, ": use more heads (num_heads) or set head_dim"));
}

SoftmaxAttentionConfig ParseSoftmaxAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention;
  attention.heads = config.Size("num_heads", 32);
  attention.kv_heads = config.Size("num_kv_heads", attention.heads);
  config.RequireDivides(attention.kv_heads, "num_kv_heads", "num_heads", attention.heads);
  attention.head_dim = ReadHeadDim(config, hidden, attention.heads);
  if (config.Has("window_size")) attention.window = config.Size("window_size");
  // rope_theta written out as null is how a config says that it has no rotary positions.
  if (config.Has("rope_parameters") || !config.IsNull("rope_theta")) {
    attention.rope = ParseRope(config, {.head_dim = attention.head_dim, .part = 1.0});
  }
  const double usual = 1.0 / std::sqrt(static_cast<double>(attention.head_dim));
  const double scale = config.Number("softmax_scale", usual);
  config.Require(scale > 0 && scale <= std::numeric_limits<float>::max(), "softmax_scale",
                 "it must be a number above 0, or null");
  attention.scale = static_cast<float>(scale);
  ReadNorm(config, attention);
  attention.qkv_bias = config.Bool("qkv_bias", false);
  attention.output_bias = config.Bool("output_bias", false);
  attention.output_gate = config.Bool("output_gate", false);
  return attention;
}

}  // namespace rivulet
