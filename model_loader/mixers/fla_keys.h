// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys of config.json that fla's attention layers have in common (docs/mixers.md#linear-attention,
// #gla).
#ifndef RIVULET_MODEL_LOADER_MIXERS_FLA_KEYS_H_
#define RIVULET_MODEL_LOADER_MIXERS_FLA_KEYS_H_

#include <cstddef>

#include "kernels/mixers/fla_output.h"
#include "kernels/ops/activation/activation.h"
#include "model_loader/config_reader.h"

namespace rivulet {

struct FlaHeads {
  size_t heads = 0;
  size_t kv_heads = 0;   // divides heads
  size_t key_dim = 0;    // of one head: hidden · expand_k / heads
  size_t value_dim = 0;  // of one head: hidden · expand_v / heads
};

struct FlaHeadDefaults {
  size_t heads = 4;
  double expand_k = 1.0;
  double expand_v = 1.0;
  bool any_key_width = false;  // else at most kMaxKeyDim
};

// num_heads, num_kv_heads (as many as num_heads by default), expand_k, expand_v.
FlaHeads ReadFlaHeads(ConfigReader& config, size_t hidden, const FlaHeadDefaults& defaults);

// use_output_gate, fuse_norm, hidden_act, elementwise_affine, norm_eps.
FlaOutput ReadFlaOutput(ConfigReader& config);

// feature_map of gla and retnet.
Activation ReadFlaFeatureMap(ConfigReader& config);

// conv_size, from 2 to kMaxConvolutionWindow.
size_t ReadConvSize(ConfigReader& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MIXERS_FLA_KEYS_H_
