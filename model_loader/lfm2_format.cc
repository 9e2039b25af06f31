// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// LFM2 in transformers: a gated short convolution (conv) or softmax attention (self_attn) by
// layer_types, then a gated MLP (feed_forward), whose maps are w1, w3 and w2. Older files name the
// attention's layers by full_attn_idxs, the MLP's width block_ff_dim and tied embeddings
// tie_embedding.
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
  SoftmaxAttentionConfig attention = ParseHfAttention(config, spec.hidden, {.theta = 1e6});
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

void AddLayers(ConfigReader& config, ModelSpec& spec) {
  const std::vector<std::string> types = LayerTypes(config);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec);
  const GatedConvolutionConfig convolution = ParseGatedConvolution(config, spec.hidden);
  const size_t width = DenseWidth(config);
  config.Require(width > 0, "intermediate_size", "it leaves no width for the feed-forward block");
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer;
    layer.mixer_norm = {HfName(i, "operator_norm.weight")};
    layer.feed_forward_norm = {HfName(i, "ffn_norm.weight")};
    layer.feed_forward = NameMlp(HfName(i, "feed_forward."), width);
    SetMixer(i, types[i], attention, convolution, layer);
    spec.layers.push_back(std::move(layer));
  }
}

}  // namespace

ModelSpec ParseLfm2Spec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  spec.norm_eps = config.Eps("norm_eps", 1e-5);
  const std::string_view tied = config.Spelling({"tie_embedding", "tie_word_embeddings"});
  spec.lm_head = config.Bool(tied, true) ? spec.embeddings : "lm_head.weight";
  spec.final_norm.weight = "model.embedding_norm.weight";
  AddLayers(config, spec);
  return spec;
}

}  // namespace rivulet
