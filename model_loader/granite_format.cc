// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Granite 4 (granitemoehybrid) in transformers: Mamba-2 (mamba) and softmax attention (self_attn)
// by layer_types; after either an MLP that all tokens share (shared_mlp), and with experts
// (block_sparse_moe) the sum of both. Embeddings, the blocks' outputs, scores and logits have
// multipliers of their own. Attention has rotary positions only where position_embedding_type says
// "rope".
#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// Older and newer names of the same two kinds.
bool IsMamba(const std::string& type) { return type == "mamba" || type == "linear_attention"; }

std::vector<std::string> LayerTypes(ConfigReader& config) {
  const std::vector<std::string> types =
      HfLayerTypes(config, config.Spelling({"layer_types", "layers_block_type"}),
                   {"mamba", "attention", "linear_attention", "full_attention"});
  if (!types.empty()) return types;
  return std::vector<std::string>(ParseLayerCount(config), "mamba");
}

double Multiplier(ConfigReader& config, const char* key) {
  return config.Number(key, 1.0, 1e-6, 1e6);
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention = ParseHfAttention(config, hidden);
  attention.scale = static_cast<float>(Multiplier(config, "attention_multiplier"));
  const bool rotates =
      config.Choice<bool>("position_embedding_type", "nope", {{"nope", false}, {"rope", true}});
  if (!rotates) attention.rope.reset();
  return attention;
}

Mamba2Config ParseGraniteMamba(ConfigReader& config, size_t hidden) {
  Mamba2Config mamba =
      ParseHfMamba2(config, HfMambaInner(config, hidden), "mamba_expand times hidden_size");
  mamba.norm_eps = HfNormEps(config);
  return mamba;
}

// Gate and up in one map.
GatedMlpSpec SharedMlp(size_t layer, size_t intermediate) {
  return {intermediate, HfName(layer, "shared_mlp.input_linear"), "",
          HfName(layer, "shared_mlp.output_linear")};
}

// Sizes of the experts; none at all where `experts` is 0.
MixtureOfExpertsSpec ParseExperts(ConfigReader& config) {
  MixtureOfExpertsSpec spec;
  spec.choice.experts = config.Size("num_local_experts", 8, 0, kMostExperts);
  if (spec.choice.experts == 0) return spec;
  spec.choice.experts_per_token = HfExpertsPerToken(config, spec.choice.experts, 2);
  spec.intermediate = config.Size("intermediate_size");
  return spec;
}

// transformers 5 renamed the experts' tensors, though it still writes the first names.
FeedForwardSpec NameFeedForward(size_t layer, MixtureOfExpertsSpec spec, size_t shared) {
  if (spec.choice.experts == 0) return SharedMlp(layer, shared);
  spec.router = {HfName(layer, "block_sparse_moe.router.layer"),
                 HfName(layer, "block_sparse_moe.router")};
  spec.gate_up = {HfName(layer, "block_sparse_moe.input_linear.weight"),
                  HfName(layer, "block_sparse_moe.experts.gate_up_proj")};
  spec.down = {HfName(layer, "block_sparse_moe.output_linear.weight"),
               HfName(layer, "block_sparse_moe.experts.down_proj")};
  spec.shared = SharedMlp(layer, shared);
  return spec;
}

void AddLayers(ConfigReader& config, ModelSpec& spec) {
  const std::vector<std::string> types = LayerTypes(config);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec.hidden);
  const Mamba2Config mamba = ParseGraniteMamba(config, spec.hidden);
  const MixtureOfExpertsSpec experts = ParseExperts(config);
  const size_t shared = config.Size("shared_intermediate_size", 1024);
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    if (IsMamba(types[i])) {
      SetHfMamba2(i, mamba, layer);
    } else {
      SetHfAttention(i, attention, layer);
    }
    layer.feed_forward = NameFeedForward(i, experts, shared);
    spec.layers.push_back(std::move(layer));
  }
}

void SetMultipliers(ConfigReader& config, ModelSpec& spec) {
  spec.embedding_multiplier = static_cast<float>(Multiplier(config, "embedding_multiplier"));
  spec.logits_multiplier = static_cast<float>(1 / Multiplier(config, "logits_scaling"));
  FoldResidualMultiplier(Multiplier(config, "residual_multiplier"), spec);
}

}  // namespace

ModelSpec ParseGraniteSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  config.Choice<bool>("normalization_function", "rmsnorm", {{"rmsnorm", true}});
  AddLayers(config, spec);
  SetMultipliers(config, spec);
  return spec;
}

}  // namespace rivulet
