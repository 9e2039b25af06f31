// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bamba in transformers: Mamba-2 (mamba), softmax attention (self_attn) in the layers that
// attn_layer_indices lists, a gated MLP (feed_forward) after either. Half of each head is rotated
// where rope_parameters does not say otherwise; transformers replaces the key outside of it by 0.5.
#include <vector>

#include "model_loader/formats.h"

namespace rivulet {
namespace {

constexpr double kNormEps = 1e-5;

std::vector<bool> AttentionLayers(ConfigReader& config) {
  std::vector<bool> attention(ParseLayerCount(config), false);
  for (const size_t layer : config.Layers("attn_layer_indices", attention.size())) {
    attention[layer] = true;
  }
  return attention;
}

}  // namespace

ModelSpec ParseBambaSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config, kNormEps);
  spec.final_norm.weight = "model.final_layernorm.weight";
  const SoftmaxAttentionConfig attention = ParseHfAttention(
      config, spec.hidden,
      {.rotated_part = 0.5, .reads_outer_part = false, .kv_heads = 8, .norm_eps = kNormEps});
  const size_t inner = HfMambaInner(config, spec.hidden);
  Mamba2Config mamba = ParseHfMamba2(config, inner, "mamba_expand times hidden_size");
  mamba.norm_eps = spec.norm_eps;
  const size_t intermediate = config.Size("intermediate_size", 14336);
  const std::vector<bool> attends = AttentionLayers(config);
  for (size_t i = 0; i < attends.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    layer.feed_forward_norm.weight = HfName(i, "pre_ff_layernorm.weight");
    if (attends[i]) {
      SetHfAttention(i, attention, layer);
    } else {
      SetHfMamba2(i, mamba, layer);
    }
    GatedMlpSpec mlp = NameGatedMlp(HfName(i, "feed_forward."), intermediate);
    mlp.bias = config.Bool("mlp_bias", false);
    layer.feed_forward = mlp;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace rivulet
