// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {

LatentAttentionConfig ParseUnrotatedLatentAttention(ConfigReader& config,
                                                    const LatentAttentionDefaults& defaults) {
  constexpr size_t kMostHeadNumbers = 4096;
  LatentAttentionConfig latent;
  const std::string_view heads = config.Spelling({"num_heads", "num_attention_heads"});
  latent.heads = config.Size(heads, defaults.heads, 1, kMostHeads);
  latent.latent = config.Size("kv_lora_rank", 512, 1, kMostAttendedValues);
  latent.key_dim = config.Size("qk_nope_head_dim", defaults.key_dim, 1, kMostHeadNumbers);
  latent.shared_key = config.Size("qk_rope_head_dim", defaults.shared_key, 0, kMostHeadNumbers);
  latent.value_dim = config.Size("v_head_dim", defaults.value_dim, 1, kMostHeadNumbers);
  latent.query_rank = defaults.query_rank;
  if (config.Has("q_lora_rank")) latent.query_rank = config.Size("q_lora_rank");
  latent.bias = config.Bool("attention_bias", false);
  latent.scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(latent.key_dim + latent.shared_key)));
  return latent;
}

LatentAttentionConfig ParseLatentAttention(ConfigReader& config, size_t /*hidden*/) {
  for (const char* key : {"rope_theta", "rope_parameters", "rope_scaling"}) {
    config.Require(!config.Has(key), key,
                   "rotated latent attention is not served; it must be null");
  }
  return ParseUnrotatedLatentAttention(config);
}

}  // namespace rivulet
