// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Kimi Linear (kimi_linear) as Moonshot publishes it and transformers writes it: Kimi Delta
// Attention (KDA) or latent attention without positions at self_attn, then an MLP (mlp) or experts
// (block_sparse_moe). Published configs name the layers in linear_attn_config, counted from 1.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr const char* kLinear = "linear_attention";
constexpr const char* kFull = "full_attention";
constexpr const char* kPublished = "linear_attn_config";

// Layers counted from 1.
void SetPublishedTypes(ConfigReader& config, const json& published, const char* key,
                       const char* type, std::vector<std::string>& types) {
  ConfigReader reader(published);
  for (const size_t layer : reader.Layers(key, types.size() + 1)) {
    config.Require(layer > 0, kPublished, "it counts layers from 1");
    if (layer > 0) types[layer - 1] = type;
  }
  config.Fail(reader.status());
}

// By layer_types, else by linear_attn_config; with neither every fourth layer is full, but the
// first.
std::vector<std::string> LayerTypes(ConfigReader& config, const json& published) {
  std::vector<std::string> types = HfLayerTypes(config, "layer_types", {kLinear, kFull});
  if (!types.empty()) return types;
  types.resize(ParseLayerCount(config));
  if (published.contains("kda_layers") && published.contains("full_attn_layers")) {
    SetPublishedTypes(config, published, "kda_layers", kLinear, types);
    SetPublishedTypes(config, published, "full_attn_layers", kFull, types);
    const auto none = std::find(types.begin(), types.end(), "");
    config.Require(
        none == types.end(), kPublished,
        absl::StrCat("kda_layers and full_attn_layers leave out layer ", none - types.begin() + 1));
    return types;
  }
  for (size_t i = 0; i < types.size(); ++i) types[i] = i > 0 && i % 4 == 0 ? kFull : kLinear;
  return types;
}

KdaConfig ParseLinear(ConfigReader& config, const json& published, float norm_eps) {
  KdaConfig kda;
  kda.tensors = KdaTensors::kKimi;
  kda.gate_bias = false;
  kda.norm_eps = norm_eps;
  kda.shape.heads = kda.shape.groups =
      LinearAttentionSize(config, published, "num_heads", "linear_num_heads", 32, 1, kLargestSize);
  const size_t width =
      LinearAttentionSize(config, published, "head_dim", "linear_head_dim", 128, 1, kMaxKeyDim);
  kda.shape.key_dim = kda.shape.value_dim = kda.gate_rank = width;
  kda.conv_size = LinearAttentionSize(config, published, "short_conv_kernel_size",
                                      "linear_conv_kernel_dim", 4, 2, kMaxConvolutionWindow);
  CheckDeltaRuleColumns(config, "linear_num_heads", kda.shape.heads, width);
  return kda;
}

LatentAttentionConfig ParseFull(ConfigReader& config) {
  const bool rotates = config.Has("mla_use_nope") && !config.Bool("mla_use_nope");
  config.Require(!rotates, "mla_use_nope",
                 "rotated latent attention is not served; use a model without positions");
  const LatentAttentionConfig latent = ParseUnrotatedLatentAttention(config);
  const size_t kv_heads = config.Size("num_key_value_heads", latent.heads);
  config.Require(kv_heads == latent.heads, "num_key_value_heads",
                 absl::StrCat("it must be num_attention_heads ", latent.heads));
  return latent;
}

// Which layers have experts: by mlp_layer_types, else all from first_k_dense_replace on.
std::vector<bool> SparseLayers(ConfigReader& config, size_t layers) {
  std::vector<bool> sparse(layers);
  const std::vector<std::string> types =
      HfLayerTypes(config, "mlp_layer_types", {"dense", "sparse"});
  const size_t first = config.Size("first_k_dense_replace", 1, 0);
  config.Require(config.Size("moe_layer_freq", 1) == 1, "moe_layer_freq",
                 "experts in some of the layers are not served; leave it out");
  for (size_t i = 0; i < layers; ++i) sparse[i] = types.empty() ? i >= first : types[i] == "sparse";
  return sparse;
}

ExpertChoice ParseChoice(ConfigReader& config) {
  config.Choice<bool>("moe_router_activation_func", "sigmoid", {{"sigmoid", true}});
  ExpertChoice choice;
  choice.scores = ExpertScores::kSigmoid;
  choice.experts =
      config.Size(config.Spelling({"num_experts", "num_local_experts"}), 256, 1, kMostExperts);
  config.Require(choice.experts <= kMostSigmoidExperts, "num_experts",
                 absl::StrCat("at most ", kMostSigmoidExperts, " are served"));
  const std::string_view each = config.Spelling({"num_experts_per_token", "num_experts_per_tok"});
  choice.experts_per_token =
      config.Size(each, std::min<size_t>(8, choice.experts), 1, choice.experts);
  const std::string_view groups = config.Spelling({"num_expert_group", "n_group"});
  choice.groups = config.Size(groups, 1, 1, kMostExpertGroups);
  choice.groups_per_token = config.Size("topk_group", 1, 1, choice.groups);
  config.RequireDivides(choice.groups, groups, "num_experts", choice.experts);
  const size_t members = choice.experts / std::max<size_t>(1, choice.groups);
  config.Require(choice.groups == 1 || members >= 2, groups, "a group must have 2 experts or more");
  config.Require(members * choice.groups_per_token >= choice.experts_per_token, "topk_group",
                 "so few groups have fewer experts than a token gets");
  choice.weights_sum_to_one =
      config.Bool(config.Spelling({"moe_renormalize", "norm_topk_prob"}), true);
  choice.scaling = config.Float("routed_scaling_factor", 2.446, 1e-6, 1e6);
  return choice;
}

MixtureOfExpertsSpec ParseExperts(ConfigReader& config) {
  MixtureOfExpertsSpec spec;
  spec.choice = ParseChoice(config);
  spec.intermediate = config.Size("moe_intermediate_size", 1024);
  const std::string_view shared = config.Spelling({"num_shared_experts", "n_shared_experts"});
  const size_t count = config.Size(shared, 1, 0, 1024);
  if (count > 0) spec.shared = NameGatedMlp("", count * spec.intermediate);
  return spec;
}

// transformers writes the published names, but has others in memory.
MixtureOfExpertsSpec NameExperts(size_t layer, MixtureOfExpertsSpec spec) {
  const std::string prefix = HfName(layer, "block_sparse_moe.");
  spec.router = {prefix + "gate"};
  spec.correction = prefix + "gate.e_score_correction_bias";
  spec.gate_up = {prefix + "experts.gate_up_proj"};
  spec.down = {prefix + "experts.down_proj"};
  spec.expert_list = prefix + "experts.";
  spec.expert_names = {"w1", "w3", "w2"};
  if (const auto* shared = std::get_if<GatedMlpSpec>(&spec.shared)) {
    spec.shared = NameGatedMlp(prefix + "shared_experts.", shared->intermediate);
  }
  return spec;
}

void AddLayers(ConfigReader& config, ModelSpec& spec) {
  const json published = PublishedLinearAttention(config);
  const std::vector<std::string> types = LayerTypes(config, published);
  const KdaConfig linear = ParseLinear(config, published, spec.norm_eps);
  const LatentAttentionConfig full = ParseFull(config);
  const std::vector<bool> sparse = SparseLayers(config, types.size());
  const bool any = std::find(sparse.begin(), sparse.end(), true) != sparse.end();
  const MixtureOfExpertsSpec experts = any ? ParseExperts(config) : MixtureOfExpertsSpec();
  const size_t intermediate = config.Size("intermediate_size", 9216);
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    layer.mixer_prefix = HfName(i, "self_attn.");
    layer.mixer_type = types[i] == kFull ? "latent_attention" : "kda";
    layer.mixer = types[i] == kFull ? MixerConfig(full) : MixerConfig(linear);
    // transformers 5 writes all feed-forwards below one name.
    GatedMlpSpec dense = NameGatedMlp(HfName(i, "mlp."), intermediate);
    dense.other_prefix = HfName(i, "block_sparse_moe.");
    if (sparse[i]) {
      layer.feed_forward = NameExperts(i, experts);
    } else {
      layer.feed_forward = std::move(dense);
    }
    spec.layers.push_back(std::move(layer));
  }
}

}  // namespace

json PublishedLinearAttention(ConfigReader& config) {
  const json* object = config.Find(kPublished);
  if (object == nullptr) return json::object();
  config.Require(object->is_object(), kPublished, "it must be an object");
  return object->is_object() ? *object : json::object();
}

size_t LinearAttentionSize(ConfigReader& config, const json& published, const char* key,
                           const char* other, size_t otherwise, size_t least, size_t most) {
  ConfigReader reader(published);
  if (!reader.Has(key)) return config.Size(other, otherwise, least, most);
  const size_t size = reader.Size(key, std::nullopt, least, most);
  config.Fail(reader.status());
  return size;
}

ModelSpec ParseKimiLinearSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  spec.norm_eps = config.Eps("rms_norm_eps", 1e-5);
  spec.lm_head = "lm_head.weight";  // tie_word_embeddings is ignored, as in transformers
  AddLayers(config, spec);
  return spec;
}

}  // namespace rivulet
