// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/short_convolution/short_convolution.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {

RgLruConfig ParseRgLru(ConfigReader& config, size_t hidden) {
  RgLruConfig rg_lru;
  rg_lru.width = config.Size("lru_width", hidden);
  const std::string_view blocks = config.Spelling({"num_heads", "num_attention_heads"});
  rg_lru.blocks = config.Size(blocks);
  config.RequireDivides(rg_lru.blocks, blocks, "lru_width", rg_lru.width);
  const std::string_view window = config.Spelling({"conv_size", "conv1d_width"});
  rg_lru.conv_size = config.Size(window, 4, 2, kMaxConvolutionWindow);
  return rg_lru;
}

}  // namespace rivulet
