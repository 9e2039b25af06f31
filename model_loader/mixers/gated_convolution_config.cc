// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/short_convolution/short_convolution.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {

GatedConvolutionConfig ParseGatedConvolution(ConfigReader& config, size_t /*hidden*/) {
  const std::string_view window = config.Spelling({"conv_size", "conv_L_cache"});
  GatedConvolutionConfig gated;
  gated.window = config.Size(window, 3, 2, kMaxConvolutionWindow);
  gated.bias = config.Bool("conv_bias", false);
  return gated;
}

}  // namespace rivulet
