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

}  // namespace

void RefuseHfUnserved(ConfigReader& config) {
  for (const Refused& refused : kRefused) {
    config.Require(!IsSet(config, refused.key), refused.key, refused.remedy);
  }
}

ModelSpec ParseHfDecoder(ConfigReader& config, double default_norm_eps) {
  RefuseHfUnserved(config);
  config.Choice<bool>("hidden_act", "silu", {{"silu", true}, {"swish", true}});
  ModelSpec spec = ParseCommonFields(config, default_norm_eps);
  NameEnds(config, "model.embed_tokens.weight", {.weight = "model.norm.weight"}, false, spec);
  return spec;
}

json TextConfig(ConfigReader& config) {
  const json* text = config.Find("text_config");
  if (text == nullptr) return config.object();
  if (!text->is_object()) {
    config.Fail("text_config", "it must be an object, the text model's config");
    return config.object();
  }
  json merged = *text;
  merged["model_type"] = config.object()["model_type"];
  for (const char* key : {"tie_word_embeddings", "quantization_config"}) {
    if (config.Has(key)) merged[key] = *config.Find(key);
  }
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (config.Has(key) && !merged.contains(key)) merged[key] = *config.Find(key);
  }
  return merged;
}

float HfNormEps(ConfigReader& config, double otherwise) {
  return config.Eps("rms_norm_eps", otherwise);
}

Activation ParseActivation(ConfigReader& config, std::string_view key, std::string_view otherwise) {
  return config.Choice<Activation>(key, otherwise,
                                   {{"silu", Activation::kSilu},
                                    {"swish", Activation::kSilu},
                                    {"gelu", Activation::kGelu},
                                    {"gelu_new", Activation::kGeluTanh},
                                    {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                    {"relu", Activation::kRelu},
                                    {"relu2", Activation::kReluSquared},
                                    {"sigmoid", Activation::kSigmoid}});
}

ExpertChoice ParseSigmoidChoice(ConfigReader& config, std::string_view experts_key, size_t experts,
                                size_t experts_per_token) {
  ExpertChoice choice;
  choice.scores = ExpertScores::kSigmoid;
  choice.experts = config.Size(experts_key, experts, 1, kMostSigmoidExperts);
  choice.experts_per_token = HfExpertsPerToken(config, choice.experts, experts_per_token);
  choice.weights_sum_to_one = config.Bool("norm_topk_prob", true);
  choice.scaling = config.Float("routed_scaling_factor", 1.0, -1e6, 1e6);
  choice.groups = config.Size("n_group", 1, 1, kMostExpertGroups);
  config.RequireDivides(choice.groups, "n_group", experts_key, choice.experts);
  const size_t size = choice.experts / choice.groups;
  config.Require(size >= 2, "n_group", "each group must have two experts or more");
  choice.groups_per_token = config.Size("topk_group", 1, 1, choice.groups);
  config.Require(choice.groups_per_token * size >= choice.experts_per_token, "topk_group",
                 absl::StrCat("so many groups must have num_experts_per_tok ",
                              choice.experts_per_token, " experts"));
  return choice;
}

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

LayerSpec HfLayer(size_t layer, NormSpec::Kind norm) { return HfLayer(HfName(layer, ""), norm); }

LayerSpec HfLayer(const std::string& prefix, NormSpec::Kind norm) {
  LayerSpec spec;
  spec.mixer_norm = {prefix + "input_layernorm.weight", "", norm};
  spec.feed_forward_norm = {prefix + "post_attention_layernorm.weight", "", norm};
  return spec;
}

void SetHfAttention(size_t index, const SoftmaxAttentionConfig& attention, LayerSpec& layer) {
  SetHfAttention(HfName(index, ""), attention, layer);
}

void SetHfAttention(const std::string& prefix, const SoftmaxAttentionConfig& attention,
                    LayerSpec& layer) {
  layer.mixer_type = "softmax_attention";
  layer.mixer_prefix = prefix + "self_attn.";
  layer.mixer = attention;
}

std::string PredictorPrefix(size_t layer) { return absl::StrCat("mtp.layers.", layer, "."); }

bool SetPredictorMixer(LayerSpec& layer) {
  if (!layer.has_mixer()) return true;
  auto* const attention = std::get_if<SoftmaxAttentionConfig>(&layer.mixer);
  if (attention != nullptr) attention->unseen = 1;
  return attention != nullptr;
}

SoftmaxAttentionConfig ParseHfAttention(ConfigReader& config, size_t hidden,
                                        const HfAttentionDefaults& defaults) {
  SoftmaxAttentionConfig attention;
  attention.heads = config.Size("num_attention_heads");
  const size_t usual_kv = defaults.kv_heads != 0 && !config.IsNull("num_key_value_heads")
                              ? defaults.kv_heads
                              : attention.heads;
  attention.kv_heads = config.Size("num_key_value_heads", usual_kv);
  config.RequireDivides(attention.kv_heads, "num_key_value_heads", "num_attention_heads",
                        attention.heads);
  const bool given = defaults.reads_head_dim && config.Has("head_dim");
  const bool shared = defaults.head_dim == 0 && !given;
  config.Require(!shared || hidden % attention.heads == 0, "num_attention_heads",
                 absl::StrCat("it must divide hidden_size ", hidden,
                              " without remainder where head_dim is absent"));
  const size_t usual = defaults.head_dim != 0 ? defaults.head_dim : hidden / attention.heads;
  attention.head_dim = given ? config.Size("head_dim") : usual;
  CheckAttentionHeadDim(config, attention.head_dim);
  attention.qkv_bias = attention.output_bias = config.Bool("attention_bias", false);
  if (defaults.rotates) {
    attention.rope = ParseRope(config, {.head_dim = attention.head_dim,
                                        .part = defaults.rotated_part,
                                        .reads_outer_part = defaults.reads_outer_part,
                                        .theta = defaults.theta});
  }
  attention.norm_eps = HfNormEps(config, defaults.norm_eps);
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  return attention;
}

std::string HfName(size_t layer, std::string_view rest) {
  return absl::StrCat("model.layers.", layer, ".", ToAbsl(rest));
}

}  // namespace rivulet
