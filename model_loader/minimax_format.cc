// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// MiniMax-Text-01 in transformers (minimax): lightning attention and softmax attention (self_attn)
// by layer_types, experts in every layer. The residual stream is the norm of what comes in:
//
//   x = norm(x)    x = alpha · x + beta · f(x)
//
// with factors for each kind of block. Files also hold the decays of lightning attention
// (slope_rate, query_decay, key_decay, diagonal_decay), which follow from the layer's number; they
// are not read, since a file in bf16 has them rounded.
#include <cmath>
#include <string>
#include <vector>

#include "model_loader/formats.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr const char* kLinear = "linear_attention";
constexpr const char* kFull = "full_attention";
constexpr double kNormEps = 1e-5;

std::vector<std::string> LayerTypes(ConfigReader& config) {
  std::vector<std::string> types = HfLayerTypes(config, "layer_types", {kLinear, kFull});
  if (!types.empty()) return types;
  for (size_t i = 0; i < ParseLayerCount(config); ++i)
    types.push_back(i % 2 == 0 ? kFull : kLinear);
  return types;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention =
      ParseHfAttention(config, hidden, {.kv_heads = 8, .norm_eps = kNormEps, .theta = 1e6});
  attention.qkv_bias = attention.output_bias = false;
  attention.window = config.Has("sliding_window") ? config.Size("sliding_window") : 0;
  return attention;
}

// Heads forget at rates that fall from head to head and from layer to layer; the last layer hardly
// forgets.
LightningAttentionConfig LightningAttention(const SoftmaxAttentionConfig& attention, size_t layer,
                                            size_t layers) {
  LightningAttentionConfig lightning{.heads = attention.heads, .head_dim = attention.head_dim};
  const auto heads = static_cast<double>(attention.heads);
  const double place = static_cast<double>(layer) / (static_cast<double>(layers - 1) + 1e-5);
  for (size_t h = 0; h < attention.heads; ++h) {
    const double slope = std::exp2(-8.0 / heads * static_cast<double>(h + 1));
    lightning.log_decay.push_back(-slope * (1.0 - place + 1e-5));
  }
  return lightning;
}

ResidualSpec Residual(ConfigReader& config, const std::string& block) {
  return {.keeps_normed = true,
          .keep = config.Float(block + "_alpha_factor", 1.0, -1e6, 1e6),
          .add = config.Float(block + "_beta_factor", 1.0, -1e6, 1e6)};
}

MixtureOfExpertsSpec NameExperts(ConfigReader& config, size_t layer) {
  MixtureOfExpertsSpec spec;
  spec.choice.experts =
      config.Size(config.Spelling({"num_local_experts", "num_experts"}), 8, 1, kMostExperts);
  spec.choice.experts_per_token = HfExpertsPerToken(config, spec.choice.experts, 2);
  spec.intermediate = config.Size("intermediate_size", 14336);
  spec.router = {HfName(layer, "block_sparse_moe.gate"), HfName(layer, "mlp.gate")};
  spec.gate_up = {HfName(layer, "mlp.experts.gate_up_proj"),
                  HfName(layer, "block_sparse_moe.experts.gate_up_proj")};
  spec.down = {HfName(layer, "mlp.experts.down_proj"),
               HfName(layer, "block_sparse_moe.experts.down_proj")};
  spec.expert_list = HfName(layer, "block_sparse_moe.experts.");
  spec.expert_names = {.gate = "w1", .up = "w3", .down = "w2"};
  return spec;
}

void SetLightning(size_t i, const SoftmaxAttentionConfig& attention, size_t layers, ModelSpec& spec,
                  LayerSpec& layer) {
  layer.mixer_type = "lightning_attention";
  layer.mixer_prefix = HfName(i, "self_attn.");
  layer.mixer = LightningAttention(attention, i, layers);
  for (const char* buffer : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) {
    spec.ignored.push_back({layer.mixer_prefix + buffer});
  }
}

}  // namespace

ModelSpec ParseMiniMaxSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config, kNormEps);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec.hidden);
  const std::vector<std::string> types = LayerTypes(config);
  for (size_t i = 0; i < types.size(); ++i) {
    const bool full = types[i] == kFull;
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    if (full) {
      SetHfAttention(i, attention, layer);
    } else {
      SetLightning(i, attention, types.size(), spec, layer);
    }
    layer.mixer_residual = Residual(config, full ? "full_attn" : "linear_attn");
    layer.feed_forward_residual = Residual(config, "mlp");
    layer.feed_forward = NameExperts(config, i);
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace rivulet
