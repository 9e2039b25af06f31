// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2 as transformers' hybrids spell it: Granite 4, Bamba, Falcon-H1.
#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// mamba_n_heads · mamba_d_head must be `inner`; the head size is absent or "auto" at times.
size_t MambaHeadDim(ConfigReader& config, size_t heads, size_t inner, std::string_view inner_name) {
  config.Require(inner % heads == 0, "mamba_n_heads",
                 absl::StrCat("it must divide ", ToAbsl(inner_name), ", ", inner));
  const nlohmann::json* given = config.Find("mamba_d_head");
  if (given == nullptr || *given == "auto") return inner / heads;
  const size_t dim = config.Size("mamba_d_head");
  config.Require(heads * dim == inner, "mamba_d_head",
                 absl::StrCat("times mamba_n_heads ", heads, " it must be ", ToAbsl(inner_name),
                              ", ", inner, "; or \"auto\""));
  return dim;
}

}  // namespace

Mamba2Config ParseHfMamba2(ConfigReader& config, size_t inner, std::string_view inner_name) {
  Mamba2Config mamba;
  mamba.heads = config.Size("mamba_n_heads", 128);
  mamba.head_dim = MambaHeadDim(config, mamba.heads, inner, inner_name);
  mamba.groups = config.Size("mamba_n_groups", 1);
  config.RequireDivides(mamba.groups, "mamba_n_groups", "mamba_n_heads", mamba.heads);
  mamba.norm_groups = mamba.groups;
  mamba.state_size = config.Size("mamba_d_state", 256, 1, kMaxKeyDim);
  mamba.conv_kernel = config.Size("mamba_d_conv", 4, 2, kMaxConvolutionWindow);
  mamba.use_conv_bias = config.Bool("mamba_conv_bias", true);
  mamba.use_bias = mamba.output_bias = config.Bool("mamba_proj_bias", false);
  ReadMamba2Limit(config, mamba);
  return mamba;
}

size_t HfMambaInner(ConfigReader& config, size_t hidden) {
  return config.Size("mamba_expand", 2, 1, 64) * hidden;
}

void SetHfMamba2(size_t index, const Mamba2Config& mamba, LayerSpec& layer) {
  layer.mixer_type = "mamba2";
  layer.mixer_prefix = HfName(index, "mamba.");
  layer.mixer = mamba;
}

}  // namespace rivulet
