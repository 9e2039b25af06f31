// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What transformers' decoders have in common (Llama and those written after it): the names
// model.embed_tokens, model.layers.{i}.{input_layernorm, self_attn, post_attention_layernorm, mlp},
// model.norm, lm_head, and how config.json spells sizes, attention and the kinds of layers. Each
// format's own file says what differs.
//
// Threading: pure functions. Errors go to the reader.
#ifndef RIVULET_MODEL_LOADER_HF_DECODER_H_
#define RIVULET_MODEL_LOADER_HF_DECODER_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model_loader/config_reader.h"
#include "model_loader/model_spec.h"

namespace rivulet {

// Everything outside of the layers. Refuses what no decoder here computes: other activations,
// quantised weights, soft-capped logits, ...
ModelSpec ParseHfDecoder(ConfigReader& config);

// rms_norm_eps, for the norms inside of mixers.
float HfNormEps(ConfigReader& config);

// num_experts_per_tok, at most `experts`; where it is missing `otherwise`, if there are that many.
size_t HfExpertsPerToken(ConfigReader& config, size_t experts, size_t otherwise);

// The kind of each layer by `layer_types`, or nothing where the config has no such list. `known`
// are the names that this architecture has.
std::vector<std::string> HfLayerTypes(ConfigReader& config, std::string_view key,
                                      std::initializer_list<std::string_view> known);

// Layer `layer` without mixer and feed-forward: its two norms of this kind.
LayerSpec HfLayer(size_t layer, NormSpec::Kind norm);

// Makes `layer` one of softmax attention at self_attn.
void SetHfAttention(size_t index, const SoftmaxAttentionConfig& attention, LayerSpec& layer);

struct HfAttentionDefaults {
  size_t head_dim = 0;        // 0: the heads share the hidden size
  double rotated_part = 1.0;  // partial_rotary_factor
};

// num_attention_heads, num_key_value_heads, head_dim, attention_bias, rms_norm_eps and the rotary
// positions.
SoftmaxAttentionConfig ParseHfAttention(ConfigReader& config, size_t hidden,
                                        const HfAttentionDefaults& defaults = {});

// "model.layers.<layer>.<rest>"
std::string HfName(size_t layer, std::string_view rest);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_DECODER_H_
