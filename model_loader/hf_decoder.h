// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What transformers' decoders have in common (Llama and those written after it): the names
// model.embed_tokens, model.layers.{i}.{input_layernorm, self_attn, post_attention_layernorm, mlp},
// model.norm, lm_head, and how config.json spells sizes, attention and the kinds of layers. Each
// format's own file says what differs.
//
// Threading: pure functions. Every error is INVALID_ARGUMENT and names key, value and remedy.
#ifndef RIVULET_MODEL_LOADER_HF_DECODER_H_
#define RIVULET_MODEL_LOADER_HF_DECODER_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// Everything outside of the layers. Refuses what no decoder here computes: other activations,
// quantised weights, soft-capped logits, ...
absl::StatusOr<ModelSpec> ParseHfDecoder(const nlohmann::json& config);

// rms_norm_eps, for the norms inside of mixers.
absl::StatusOr<double> HfNormEps(const nlohmann::json& config);

// num_hidden_layers.
absl::StatusOr<size_t> HfLayers(const nlohmann::json& config);

// num_experts_per_tok, at most `experts`; where it is missing `otherwise`, if there are so many.
absl::StatusOr<size_t> HfExpertsPerToken(const nlohmann::json& config, size_t experts,
                                         size_t otherwise);

// The kind of each layer by `layer_types`, or nothing where the config has no such list. `known`
// are the names that this architecture has.
absl::StatusOr<std::vector<std::string>> HfLayerTypes(
    const nlohmann::json& config, std::string_view key,
    std::initializer_list<std::string_view> known);

// Layer `layer` without mixer and feed-forward: its two norms of this kind.
LayerSpec HfLayer(size_t layer, NormSpec::Kind norm);

// Makes `layer` one of softmax attention at self_attn; `attention` comes from ParseHfAttention.
void SetHfAttention(size_t index, const nlohmann::json& attention, LayerSpec& layer);

// The mixer's keys (kernels/mixers/softmax_attention) for num_attention_heads, num_key_value_heads,
// head_dim, attention_bias, rms_norm_eps and the rotary positions.
absl::StatusOr<nlohmann::json> ParseHfAttention(const nlohmann::json& config, size_t hidden);

// mlp.{gate,up,down}_proj.
GatedMlpSpec HfMlp(size_t layer, size_t intermediate);

// "model.layers.<layer>.<rest>"
std::string HfName(size_t layer, std::string_view rest);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_HF_DECODER_H_
