// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// "auto" is hidden_size / 16, rounded up.
size_t ReadRank(ConfigReader& config, size_t hidden) {
  constexpr const char* kKey = "time_step_rank";
  const size_t usual = (hidden + 15) / 16;
  const nlohmann::json* value = config.Find(kKey);
  if (value == nullptr || !value->is_string()) return config.Size(kKey, usual);
  config.Require(*value == "auto", kKey, "it must be \"auto\" or a whole number");
  return usual;
}

}  // namespace

MambaConfig ParseMamba(ConfigReader& config, size_t hidden) {
  MambaConfig mamba;
  mamba.inner = ReadInner(config, hidden);
  mamba.rank = ReadRank(config, hidden);
  mamba.state_size = config.Size("state_size", 16, 1, kMaxKeyDim);
  mamba.conv_kernel = config.Size("conv_kernel", 4, 2, kMaxConvolutionWindow);
  mamba.use_bias = config.Bool("use_bias", false);
  mamba.use_conv_bias = config.Bool("use_conv_bias", true);
  mamba.use_scan_norms = config.Has("mixer_rms_eps");
  if (mamba.use_scan_norms) mamba.scan_norm_eps = config.Eps("mixer_rms_eps", 1e-6);
  config.Choice<bool>("hidden_act", "silu", {{"silu", true}, {"swish", true}});
  return mamba;
}

}  // namespace rivulet
