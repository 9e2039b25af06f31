// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/mixers/parsers.h"

namespace rivulet {

GlaConfig ParseGla(ConfigReader& config, size_t hidden) {
  GlaConfig gla;
  const FlaHeads heads = ReadFlaHeads(config, hidden, {.expand_k = 0.5});
  gla.heads = heads.heads;
  gla.kv_heads = heads.kv_heads;
  gla.key_dim = heads.key_dim;
  gla.value_dim = heads.value_dim;
  gla.feature_map = ReadFlaFeatureMap(config);
  gla.use_short_conv = config.Bool("use_short_conv", false);
  gla.conv_size = ReadConvSize(config);
  gla.conv_bias = config.Bool("conv_bias", false);
  gla.output = ReadFlaOutput(config);
  gla.gate_rank = config.Size("gate_low_rank_dim", 16);
  gla.gate_logit_normalizer = config.Float("gate_logit_normalizer", 16.0, 0.001, 1e6);
  if (!config.Has("clamp_min")) return gla;
  gla.clamp_min = static_cast<float>(config.Number("clamp_min"));
  config.Require(*gla.clamp_min <= 0, "clamp_min", "log decays are at most 0; use null for none");
  return gla;
}

}  // namespace rivulet
