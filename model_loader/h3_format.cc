// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// H3's public models (docs/mixers.md#h3) as model_loader/convert_h3.py writes them: the tensor
// names of their model.pt, and a config.json in keys of ours, since they have none. Blocks of
// LayerNorm, mixer, LayerNorm and a two-layer MLP; those in attn_layer_idx have softmax attention
// in the place of H3. The public models' output map is the embeddings.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// rotary_dim 0 or absent: no positions.
SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention;
  attention.heads = attention.kv_heads = config.Size("num_attention_heads");
  config.RequireDivides(attention.heads, "num_attention_heads", "hidden_size", hidden);
  attention.head_dim = hidden / attention.heads;
  CheckAttentionHeadDim(config, attention.head_dim);
  const size_t rotary = config.Size("rotary_dim", 0, 0, attention.head_dim);
  config.Require(rotary % 2 == 0, "rotary_dim", "it must be even, or 0 for none");
  if (rotary != 0) attention.rope = RopeConfig{.rotary_dim = rotary};
  attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(attention.head_dim)));
  attention.qkv_bias = attention.output_bias = true;
  return attention;
}

NormSpec NameNorm(const std::string& prefix) {
  return {prefix + ".weight", prefix + ".bias", NormSpec::Kind::kLayer};
}

LayerSpec NameLayer(size_t layer, size_t intermediate) {
  const std::string prefix = absl::StrCat("backbone.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_prefix = prefix + "mixer.";
  spec.mixer_norm = NameNorm(prefix + "norm1");
  spec.feed_forward_norm = NameNorm(prefix + "norm2");
  spec.feed_forward = TwoLayerMlpSpec{intermediate, prefix + "mlp.fc1", prefix + "mlp.fc2"};
  return spec;
}

void AddLayers(ConfigReader& config, ModelSpec& spec) {
  const size_t layers = ParseLayerCount(config);
  RefuseMixture(config, layers, "h3");
  const size_t intermediate = config.Size("intermediate_size", 4 * spec.hidden);
  const H3Config h3 = ParseH3(config, spec.hidden);
  for (size_t i = 0; i < layers; ++i) {
    spec.layers.push_back(NameLayer(i, intermediate));
    spec.layers[i].mixer_type = "h3";
    spec.layers[i].mixer = h3;
  }
  const std::vector<size_t> chosen = config.Layers("attn_layer_idx", layers);
  if (chosen.empty()) return;
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec.hidden);
  for (const size_t i : chosen) {
    spec.layers[i].mixer_type = "softmax_attention";
    spec.layers[i].mixer = attention;
  }
}

}  // namespace

ModelSpec ParseH3Spec(ConfigReader& config) {
  ModelSpec spec = ParseCommonFields(config, 1e-5);
  NameEnds(config, "backbone.embeddings.word_embeddings.weight", NameNorm("backbone.ln_f"), true,
           spec);
  AddLayers(config, spec);
  return spec;
}

}  // namespace rivulet
