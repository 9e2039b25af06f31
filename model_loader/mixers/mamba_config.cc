// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {

size_t ReadMambaRank(ConfigReader& config, const char* key, size_t hidden) {
  const size_t usual = (hidden + 15) / 16;
  const nlohmann::json* value = config.Find(key);
  if (value == nullptr || !value->is_string()) return config.Size(key, usual);
  config.Require(*value == "auto", key, "it must be \"auto\" or a whole number");
  return usual;
}

MambaConfig ParseMamba(ConfigReader& config, size_t hidden) {
  MambaConfig mamba;
  mamba.inner = ReadInner(config, hidden);
  mamba.rank = ReadMambaRank(config, "time_step_rank", hidden);
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
