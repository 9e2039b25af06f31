// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {

RetNetConfig ParseRetNet(ConfigReader& config, size_t hidden) {
  RetNetConfig retnet;
  const FlaHeads heads = ReadFlaHeads(config, hidden, {.heads = 8, .expand_v = 2.0});
  retnet.heads = heads.heads;
  retnet.kv_heads = heads.kv_heads;
  retnet.key_dim = heads.key_dim;
  retnet.value_dim = heads.value_dim;
  if (retnet.key_dim % 2 != 0) {
    config.Fail(absl::StrCat(
        "heads of key width ", retnet.key_dim,
        " cannot be rotated in pairs: choose num_heads and expand_k so that it is even"));
  }
  retnet.feature_map = ReadFlaFeatureMap(config);
  retnet.use_short_conv = config.Bool("use_short_conv", false);
  retnet.conv_size = ReadConvSize(config);
  retnet.conv_bias = config.Bool("conv_bias", false);
  retnet.output = ReadFlaOutput(config);
  return retnet;
}

}  // namespace rivulet
