// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Zamba2 in transformers: layers of Mamba-2 (linear_attention, older "mamba"), and hybrid ones in
// which a block of attention and MLP that layers share comes before Mamba-2
// (kernels/mixers/shared_transformer). num_mem_blocks such blocks take turns; a block's tensors are
// named after the first layer that uses it. transformers shares blocks only where it ties the
// output map: with tie_word_embeddings false every hybrid layer has a block of its own. Layers have
// no MLP of their own.
//
// Keys that transformers does not read are not read here either: use_conv_bias (there is always
// one), time_step_max, use_long_context (its config has the rope_theta that it needs).
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

constexpr double kNormEps = 1e-5;

// The pattern of the 2.7B model, which the list is where it is absent.
std::vector<bool> UsualHybrids() {
  std::vector<bool> hybrid(54, false);
  for (const size_t layer : {6, 12, 18, 24, 30, 36, 42, 47, 51}) hybrid[layer] = true;
  return hybrid;
}

std::vector<bool> HybridLayers(ConfigReader& config) {
  const std::vector<std::string> types =
      HfLayerTypes(config, config.Spelling({"layers_block_type", "layer_types"}),
                   {"linear_attention", "mamba", "hybrid"});
  std::vector<bool> hybrid;
  for (const std::string& type : types) hybrid.push_back(type == "hybrid");
  if (!hybrid.empty()) return hybrid;
  hybrid = UsualHybrids();
  config.Require(ParseLayerCount(config) == hybrid.size(), "num_hidden_layers",
                 absl::StrCat("without layers_block_type it must be ", hybrid.size()));
  return hybrid;
}

Mamba2Config ParseZamba2Mamba(ConfigReader& config, size_t hidden) {
  Mamba2Config mamba;
  const size_t inner = HfMambaInner(config, hidden);
  mamba.heads = config.Size("n_mamba_heads", 8);
  config.RequireDivides(mamba.heads, "n_mamba_heads", "mamba_expand times hidden_size", inner);
  mamba.head_dim = inner / mamba.heads;
  mamba.groups = config.Size("mamba_ngroups", 1);
  config.RequireDivides(mamba.groups, "mamba_ngroups", "n_mamba_heads", mamba.heads);
  mamba.norm_groups = mamba.groups;
  mamba.norm_eps = static_cast<float>(kNormEps);  // no key changes it
  mamba.state_size = config.Size("mamba_d_state", 64, 1, kMaxKeyDim);
  mamba.conv_kernel = config.Size("mamba_d_conv", 4, 2, kMaxConvolutionWindow);
  mamba.use_bias = mamba.output_bias = config.Bool("add_bias_linear", false);
  mamba.delta_low = config.Float("time_step_min", 0.001, 0.0, 1e6);
  return mamba;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention;
  attention.heads = config.Size("num_attention_heads", 32);
  attention.kv_heads = config.Size("num_key_value_heads", attention.heads);
  config.RequireDivides(attention.kv_heads, "num_key_value_heads", "num_attention_heads",
                        attention.heads);
  config.RequireDivides(attention.heads, "num_attention_heads", "twice hidden_size", 2 * hidden);
  attention.head_dim = 2 * hidden / attention.heads;
  CheckAttentionHeadDim(config, attention.head_dim);
  attention.inputs = 2 * hidden;
  attention.scale = static_cast<float>(std::sqrt(2.0 / static_cast<double>(attention.head_dim)));
  if (config.Bool("use_mem_rope", false)) {
    attention.rope = ParseRope(config, {.head_dim = attention.head_dim});
  }
  if (!config.Bool("use_shared_attention_adapter", false)) return attention;
  attention.adapter_rank = config.Size("adapter_rank", 128);
  config.Require(attention.kv_heads == attention.heads, "num_key_value_heads",
                 "with use_shared_attention_adapter it must be num_attention_heads");
  return attention;
}

SharedTransformerConfig ParseHybrid(ConfigReader& config, const ModelSpec& spec,
                                    const Mamba2Config& mamba) {
  SharedTransformerConfig hybrid;
  hybrid.attention = ParseAttention(config, spec.hidden);
  hybrid.mamba = mamba;
  hybrid.intermediate = config.Size("intermediate_size", 4 * spec.hidden);
  hybrid.f = ParseActivation(config, "hidden_act", "gelu");
  hybrid.bias = config.Bool("add_bias_linear", false);
  hybrid.adapter_rank = config.Size("adapter_rank", 128);
  hybrid.norm_eps = spec.norm_eps;
  return hybrid;
}

// Makes layer `index` the hybrid one number `use`, with the block that is named after layer
// `block`.
void SetHybrid(size_t index, size_t use, size_t block, SharedTransformerConfig hybrid,
               ModelSpec& spec, LayerSpec& layer) {
  hybrid.shared = HfName(block, "shared_transformer.");
  hybrid.adapter = hybrid.attention.adapter = use;
  layer.mixer_type = "shared_transformer";
  layer.mixer_prefix = HfName(index, "");
  layer.mixer = hybrid;
  layer.reads_embeddings = true;
  // A file may hold the block once more under each of its layers, and a block that is not shared
  // has the adapters of other layers too.
  if (block != index) spec.ignored.push_back({HfName(index, "shared_transformer.")});
  if (spec.tied()) return;
  for (const char* adapters : {"feed_forward.gate_up_proj", "self_attn.linear_q",
                               "self_attn.linear_k", "self_attn.linear_v"}) {
    spec.ignored.push_back({absl::StrCat(hybrid.shared, adapters, "_adapter_list.")});
  }
}

}  // namespace

ModelSpec ParseZamba2Spec(ConfigReader& config) {
  RefuseHfUnserved(config);
  ModelSpec spec = ParseCommonFields(config, kNormEps);
  NameEnds(config, "model.embed_tokens.weight", {.weight = "model.final_layernorm.weight"}, true,
           spec);
  const Mamba2Config mamba = ParseZamba2Mamba(config, spec.hidden);
  const SharedTransformerConfig hybrid = ParseHybrid(config, spec, mamba);
  const size_t blocks = config.Size("num_mem_blocks", 1);
  std::vector<size_t> first;  // the layer that each block is named after
  const std::vector<bool> is_hybrid = HybridLayers(config);
  size_t use = 0;
  for (size_t i = 0; i < is_hybrid.size(); ++i) {
    LayerSpec& layer = spec.layers.emplace_back();
    if (is_hybrid[i]) {
      if (first.size() < blocks) first.push_back(i);
      SetHybrid(i, use, spec.tied() ? first[use % blocks] : i, hybrid, spec, layer);
      ++use;
    } else {
      SetHfMamba2(i, mamba, layer);
      layer.mixer_norm = {HfName(i, "input_layernorm.weight")};
    }
  }
  return spec;
}

}  // namespace rivulet
