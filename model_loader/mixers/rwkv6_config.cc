// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/mixers/parsers.h"

namespace rivulet {

Rwkv6Config ParseRwkv6(ConfigReader& config, size_t hidden) {
  Rwkv6Config rwkv6;
  const FlaHeads heads = ReadFlaHeads(config, hidden, {.expand_k = 0.5});
  config.Require(heads.kv_heads == heads.heads, "num_kv_heads",
                 "RWKV-6 has a key and a value for each head; leave it out");
  rwkv6.shape = {heads.heads, heads.heads, heads.key_dim, heads.value_dim};
  rwkv6.mixture_rank = config.Size("proj_low_rank_dim", 32);
  rwkv6.decay_rank = config.Size("gate_low_rank_dim", 64);
  rwkv6.norm_eps = config.Eps("norm_eps", 1e-5);
  return rwkv6;
}

}  // namespace rivulet
