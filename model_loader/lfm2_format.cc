// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// LFM2 in transformers: a gated short convolution (conv) or softmax attention (self_attn) by
// layer_types, then a gated MLP (feed_forward), whose maps are w1, w3 and w2. Older files name the
// attention's layers by full_attn_idxs, the MLP's width block_ff_dim and tied embeddings
// tie_embedding. lfm2_moe has experts behind a sigmoid router in all layers but the first.
#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr const char* kConvolution = "conv";
constexpr const char* kAttention = "full_attention";

// By layer_types, else by full_attn_idxs; with neither every layer has attention.
std::vector<std::string> LayerTypes(ConfigReader& config) {
  std::vector<std::string> types = HfLayerTypes(config, "layer_types", {kConvolution, kAttention});
  if (!types.empty()) return types;
  const size_t layers = ParseLayerCount(config);
  if (!config.Has("full_attn_idxs")) return std::vector<std::string>(layers, kAttention);
  types.assign(layers, kConvolution);
  for (const size_t i : config.Layers("full_attn_idxs", layers)) types[i] = kAttention;
  return types;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, const ModelSpec& spec) {
  SoftmaxAttentionConfig attention =
      ParseHfAttention(config, spec.hidden, {.kv_heads = 8, .theta = 1e6});
  attention.tensors = AttentionTensors::kLfm2;
  attention.qkv_bias = attention.output_bias = false;
  attention.qk_norm = HeadNorm::kRms;
  attention.norm_eps = spec.norm_eps;
  return attention;
}

// Two thirds of the width in the config, times a multiplier, rounded up, unless the config says
// that its width is the width.
size_t DenseWidth(ConfigReader& config) {
  size_t width = config.Size(config.Spelling({"block_ff_dim", "intermediate_size"}), 12288);
  if (!config.Bool("block_auto_adjust_ff_dim", true)) return width;
  width = 2 * width / 3;
  if (config.IsNull("block_ffn_dim_multiplier")) return width;
  const double multiplier = config.Number("block_ffn_dim_multiplier", 1.0, 1e-3, 64.0);
  const size_t step = config.Size("block_multiple_of", 256);
  width = static_cast<size_t>(multiplier * static_cast<double>(width));
  return (width + step - 1) / step * step;
}

GatedMlpSpec NameMlp(const std::string& prefix, size_t width) {
  return {width, prefix + "w1", prefix + "w3", prefix + "w2"};
}

void SetMixer(size_t index, const std::string& type, const SoftmaxAttentionConfig& attention,
              const GatedConvolutionConfig& convolution, LayerSpec& layer) {
  if (type == kAttention) return SetHfAttention(index, attention, layer);
  layer.mixer_type = "gated_convolution";
  layer.mixer_prefix = HfName(index, "conv.");
  layer.mixer = convolution;
}

MixtureOfExpertsSpec ParseExperts(ConfigReader& config) {
  MixtureOfExpertsSpec spec;
  spec.choice = ParseSigmoidChoice(config, "num_experts", 32, 4);
  spec.intermediate = config.Size("moe_intermediate_size", 1792);
  return spec;
}

MixtureOfExpertsSpec NameExperts(const std::string& prefix, bool corrected,
                                 MixtureOfExpertsSpec spec) {
  spec.router = {prefix + "gate"};
  if (corrected) spec.correction = prefix + "expert_bias";
  spec.gate_up = {prefix + "experts.gate_up_proj"};
  spec.down = {prefix + "experts.down_proj"};
  spec.expert_list = prefix + "experts.";
  spec.expert_names = {"w1", "w3", "w2"};
  return spec;
}

// What comes after each layer's mixer.
using FeedForwards = std::vector<FeedForwardSpec>;

FeedForwards DenseFeedForwards(ConfigReader& config) {
  const size_t width = DenseWidth(config);
  config.Require(width > 0, "intermediate_size", "it leaves no width for the feed-forward block");
  FeedForwards all(ParseLayerCount(config));
  for (size_t i = 0; i < all.size(); ++i) all[i] = NameMlp(HfName(i, "feed_forward."), width);
  return all;
}

FeedForwards SparseFeedForwards(ConfigReader& config) {
  const size_t dense = config.Size("num_dense_layers", 2, 0);
  const size_t width = config.Size("intermediate_size", 7168);
  const bool corrected = config.Bool("use_expert_bias", true);
  const MixtureOfExpertsSpec experts = ParseExperts(config);
  FeedForwards all(ParseLayerCount(config));
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string prefix = HfName(i, "feed_forward.");
    if (i < dense) {
      all[i] = NameMlp(prefix, width);
    } else {
      all[i] = NameExperts(prefix, corrected, experts);
    }
  }
  return all;
}

void AddLayers(ConfigReader& config, const FeedForwards& feed_forwards, ModelSpec& spec) {
  const std::vector<std::string> types = LayerTypes(config);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec);
  const GatedConvolutionConfig convolution = ParseGatedConvolution(config, spec.hidden);
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer;
    layer.mixer_norm = {HfName(i, "operator_norm.weight")};
    layer.feed_forward_norm = {HfName(i, "ffn_norm.weight")};
    layer.feed_forward = feed_forwards[i];
    SetMixer(i, types[i], attention, convolution, layer);
    spec.layers.push_back(std::move(layer));
  }
}

ModelSpec ParseEnds(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  spec.norm_eps = config.Eps("norm_eps", 1e-5);
  const std::string_view tied = config.Spelling({"tie_embedding", "tie_word_embeddings"});
  spec.lm_head = config.Bool(tied, true) ? spec.embeddings : "lm_head.weight";
  spec.final_norm.weight = "model.embedding_norm.weight";
  return spec;
}

}  // namespace

ModelSpec ParseLfm2Spec(ConfigReader& config) {
  ModelSpec spec = ParseEnds(config);
  AddLayers(config, DenseFeedForwards(config), spec);
  return spec;
}

ModelSpec ParseLfm2MoeSpec(ConfigReader& config) {
  ModelSpec spec = ParseEnds(config);
  AddLayers(config, SparseFeedForwards(config), spec);
  return spec;
}

}  // namespace rivulet
