// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/strings.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

// Keys that change what a decoder computes. Null, false, 0 and [] count as absent.
struct Refused {
  const char* key;
  const char* remedy;
};
constexpr Refused kRefused[] = {
    {"quantization_config", "quantised weights are not served; use the checkpoint in bf16"},
    {"attn_logit_softcapping", "soft-capped attention is not served; use a model without it"},
    {"final_logit_softcapping", "soft-capped logits are not served; use a model without it"},
    {"attention_sinks", "attention sinks are not served; use a model without them"},
    {"sinks", "attention sinks are not served; use a model without them"},
    {"attention_chunk_size", "chunked attention is not served; use a model without it"},
    {"clip_qkv", "clipped queries and keys are not served; use a model without it"},
    {"no_rope_layers", "positions that differ by layer are not served; use a model without it"},
    {"dual_chunk_attention_config", "dual chunk attention is not served; remove the key"},
};

bool IsSet(const ConfigReader& config, const char* key) {
  const json* value = config.Find(key);
  return value != nullptr && *value != false && *value != 0 && *value != json::array();
}

void RefuseUnserved(ConfigReader& config) {
  for (const Refused& refused : kRefused) {
    config.Require(!IsSet(config, refused.key), refused.key, refused.remedy);
  }
  config.Choice<bool>("hidden_act", "silu", {{"silu", true}, {"swish", true}});
}

}  // namespace

ModelSpec ParseHfDecoder(ConfigReader& config) {
  RefuseUnserved(config);
  ModelSpec spec = ParseCommonFields(config, 1e-6);
  NameEnds(config, "model.embed_tokens.weight", {.weight = "model.norm.weight"}, false, spec);
  return spec;
}

float HfNormEps(ConfigReader& config) { return config.Eps("rms_norm_eps", 1e-6); }

size_t HfExpertsPerToken(ConfigReader& config, size_t experts, size_t otherwise) {
  const auto allowed = otherwise <= experts ? std::optional<size_t>(otherwise) : std::nullopt;
  return config.Size("num_experts_per_tok", allowed, 1, experts);
}

std::vector<std::string> HfLayerTypes(ConfigReader& config, std::string_view key,
                                      std::initializer_list<std::string_view> known) {
  const std::vector<std::string> types = LayerListNames(config, key, ParseLayerCount(config));
  for (size_t i = 0; i < types.size(); ++i) {
    if (std::find(known.begin(), known.end(), types[i]) != known.end()) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    config.Fail(absl::StrCat(ToAbsl(key), ": entry ", i, " is \"", types[i],
                             "\": layers of this architecture are ", absl::StrJoin(names, ", ")));
  }
  return types;
}

LayerSpec HfLayer(size_t layer, NormSpec::Kind norm) {
  LayerSpec spec;
  spec.mixer_norm = {HfName(layer, "input_layernorm.weight"), "", norm};
  spec.feed_forward_norm = {HfName(layer, "post_attention_layernorm.weight"), "", norm};
  return spec;
}

void SetHfAttention(size_t index, const SoftmaxAttentionConfig& attention, LayerSpec& layer) {
  layer.mixer_type = "softmax_attention";
  layer.mixer_prefix = HfName(index, "self_attn.");
  layer.mixer = attention;
}

SoftmaxAttentionConfig ParseHfAttention(ConfigReader& config, size_t hidden,
                                        const HfAttentionDefaults& defaults) {
  SoftmaxAttentionConfig attention;
  attention.heads = config.Size("num_attention_heads");
  attention.kv_heads = config.Size("num_key_value_heads", attention.heads);
  config.RequireDivides(attention.kv_heads, "num_key_value_heads", "num_attention_heads",
                        attention.heads);
  const bool shared = defaults.head_dim == 0 && !config.Has("head_dim");
  config.Require(!shared || hidden % attention.heads == 0, "num_attention_heads",
                 absl::StrCat("it must divide hidden_size ", hidden,
                              " without remainder where head_dim is absent"));
  const size_t usual = defaults.head_dim != 0 ? defaults.head_dim : hidden / attention.heads;
  attention.head_dim = config.Size("head_dim", usual);
  CheckAttentionHeadDim(config, attention.head_dim);
  attention.qkv_bias = attention.output_bias = config.Bool("attention_bias", false);
  attention.rope = ParseRope(config, attention.head_dim, defaults.rotated_part, defaults.theta);
  attention.norm_eps = HfNormEps(config);
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  return attention;
}

std::string HfName(size_t layer, std::string_view rest) {
  return absl::StrCat("model.layers.", layer, ".", ToAbsl(rest));
}

}  // namespace rivulet
