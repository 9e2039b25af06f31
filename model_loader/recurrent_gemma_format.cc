// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RecurrentGemma in transformers: an RG-LRU block or softmax attention in a window
// (temporal_block), by the repeated pattern block_types; after either a gated MLP with gelu and
// biases (mlp_block). Gemma's conventions: norms by 1 + w, embeddings times √hidden, logits capped.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/dtype.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr const char* kRecurrent = "recurrent";
constexpr const char* kAttention = "attention";

// The names of block_types, which repeat until there are enough.
std::vector<std::string> BlockTypes(ConfigReader& config) {
  const size_t layers = ParseLayerCount(config);
  std::vector<std::string> pattern = {kRecurrent, kRecurrent, kAttention};
  if (const nlohmann::json* given = config.Find("block_types"); given != nullptr) {
    pattern = LayerListNames(config, "block_types", given->size());
  }
  config.Require(!pattern.empty(), "block_types", "it must name a block");
  for (const std::string& name : pattern) {
    config.Require(name == kRecurrent || name == kAttention, "block_types",
                   "blocks of this architecture are recurrent and attention");
  }
  std::vector<std::string> types;
  for (size_t i = 0; i < layers && !pattern.empty(); ++i) {
    types.push_back(pattern[i % pattern.size()]);
  }
  return types;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, const ModelSpec& spec) {
  SoftmaxAttentionConfig attention = ParseHfAttention(config, spec.hidden, {.rotated_part = 0.5});
  config.Require(!attention.rope.has_value() || attention.rope->scaling == RopeScaling::kNone,
                 config.Spelling({"rope_parameters", "rope_scaling"}),
                 "this architecture has the rope_type default alone, in transformers too");
  attention.output_bias = true;
  attention.window = config.Size("attention_window_size", 2048);
  return attention;
}

GatedMlpSpec NameMlp(size_t layer, size_t width) {
  GatedMlpSpec mlp = NameGatedMlp(HfName(layer, "mlp_block."), width);
  mlp.bias = true;
  mlp.form.f = Activation::kGeluTanh;
  return mlp;
}

void AddLayers(ConfigReader& config, ModelSpec& spec) {
  const std::vector<std::string> types = BlockTypes(config);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec);
  const RgLruConfig recurrent = ParseRgLru(config, spec.hidden);
  const size_t width = config.Size("intermediate_size", 3 * spec.hidden, 2) / 2;
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer;
    const auto norm = [&](const char* name) {
      return NormSpec{.weight = HfName(i, name), .kind = NormSpec::Kind::kRmsOnePlus};
    };
    layer.mixer_norm = norm("temporal_pre_norm.weight");
    layer.feed_forward_norm = norm("channel_pre_norm.weight");
    layer.mixer_prefix = HfName(i, "temporal_block.");
    layer.mixer_type = types[i] == kAttention ? "softmax_attention" : "rg_lru";
    layer.mixer = types[i] == kAttention ? MixerConfig(attention) : MixerConfig(recurrent);
    layer.feed_forward = NameMlp(i, width);
    spec.layers.push_back(std::move(layer));
  }
}

// √hidden as transformers has it, rounded to bf16.
float EmbeddingMultiplier(size_t hidden) {
  const auto root = static_cast<float>(std::sqrt(static_cast<double>(hidden)));
  return BFloat16ToFloat(FloatToBFloat16(root));
}

}  // namespace

ModelSpec ParseRecurrentGemmaSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  config.Choice<bool>("hidden_activation", "gelu_pytorch_tanh", {{"gelu_pytorch_tanh", true}});
  NameEnds(config, "model.embed_tokens.weight",
           {.weight = "model.final_norm.weight", .kind = NormSpec::Kind::kRmsOnePlus}, true, spec);
  spec.embedding_multiplier = EmbeddingMultiplier(spec.hidden);
  spec.logits_cap = config.Float("logits_soft_cap", 30.0, 1e-3, 1e6);
  AddLayers(config, spec);
  return spec;
}

}  // namespace rivulet
