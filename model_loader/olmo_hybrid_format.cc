// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// OLMo Hybrid in transformers: Gated DeltaNet (linear_attn, fla's tensors) and softmax attention
// (self_attn) by layer_types. A layer of Gated DeltaNet norms what its blocks read, one of
// attention what they give (OLMo 3), and q and k as a whole, over all heads. A config without a
// rope_theta has positions, one whose rope_theta is null has none.
//
// Published files call the norms attention_layer_norm and feedforward_layer_norm; a file that
// transformers wrote has the second name also where it stands for post_attention_layernorm of a
// layer of attention.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr const char* kLinear = "linear_attention";
constexpr const char* kFull = "full_attention";

// Every fourth layer is of attention, or the last one of fewer.
std::vector<std::string> LayerTypes(ConfigReader& config) {
  std::vector<std::string> types = HfLayerTypes(config, "layer_types", {kLinear, kFull});
  if (!types.empty()) return types;
  types.assign(ParseLayerCount(config), kLinear);
  for (size_t i = 3; i < types.size(); i += 4) types[i] = kFull;
  if (types.size() < 4) types.back() = kFull;
  return types;
}

bool Rotates(const ConfigReader& config) {
  const nlohmann::json* parameters = config.Find("rope_parameters");
  if (parameters == nullptr || !parameters->is_object()) return !config.IsNull("rope_theta");
  return !ConfigReader(*parameters).IsNull("rope_theta");
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention =
      ParseHfAttention(config, hidden, {.reads_head_dim = false, .rotates = Rotates(config)});
  attention.qk_norm = HeadNorm::kRmsAll;
  return attention;
}

// A head size that the config leaves out follows from others.
void ReadHeads(ConfigReader& config, size_t hidden, HeadShape& shape) {
  const size_t heads = config.Size("num_attention_heads");
  shape.groups = config.Size("linear_num_key_heads", heads);
  shape.heads = config.Size("linear_num_value_heads", heads);
  config.Require(shape.heads % shape.groups == 0, "linear_num_value_heads",
                 absl::StrCat("it must be a multiple of linear_num_key_heads ", shape.groups));
  const size_t usual = std::max<size_t>(1, hidden * 3 / (4 * shape.groups));
  shape.key_dim = config.Size("linear_key_head_dim", usual, 1, kMaxKeyDim);
  config.Require(shape.key_dim >= 1 && shape.key_dim <= kMaxKeyDim, "linear_key_head_dim",
                 absl::StrCat("it must be from 1 to ", kMaxKeyDim));
  shape.value_dim = config.Size("linear_value_head_dim", 2 * shape.key_dim);
}

DeltaRuleConfig ParseDeltaRule(ConfigReader& config, size_t hidden) {
  DeltaRuleConfig delta;
  delta.decays = true;
  ReadHeads(config, hidden, delta.shape);
  CheckDeltaRuleColumns(config, "linear_num_key_heads", delta.shape.groups, delta.shape.key_dim);
  CheckDeltaRuleColumns(config, "linear_num_value_heads", delta.shape.heads, delta.shape.value_dim);
  delta.conv_size = config.Size("linear_conv_kernel_dim", 4, 2, kMaxConvolutionWindow);
  delta.negative_eigenvalues = config.Bool("linear_allow_neg_eigval", true);
  delta.use_gate = true;
  delta.norm_eps = 1e-5f;  // of the norm of heads: no key changes it
  return delta;
}

NormSpec Norm(size_t layer, const char* name, const char* published) {
  return {.weight = HfName(layer, name), .other_weight = HfName(layer, published)};
}

void SetAttention(size_t i, const SoftmaxAttentionConfig& attention, LayerSpec& layer) {
  SetHfAttention(i, attention, layer);
  layer.mixer_residual.output_norm =
      Norm(i, "post_attention_layernorm.weight", "feedforward_layer_norm.weight");
  layer.feed_forward_residual.output_norm = {HfName(i, "post_feedforward_layernorm.weight")};
}

void SetDeltaRule(size_t i, const DeltaRuleConfig& delta, LayerSpec& layer) {
  layer.mixer_type = "gated_deltanet";
  layer.mixer_prefix = HfName(i, "linear_attn.");
  layer.mixer = delta;
  layer.mixer_norm = Norm(i, "input_layernorm.weight", "attention_layer_norm.weight");
  layer.feed_forward_norm =
      Norm(i, "post_attention_layernorm.weight", "feedforward_layer_norm.weight");
}

}  // namespace

ModelSpec ParseOlmoHybridSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  const std::vector<std::string> types = LayerTypes(config);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec.hidden);
  const DeltaRuleConfig delta = ParseDeltaRule(config, spec.hidden);
  const size_t intermediate = config.Size("intermediate_size", 11008);
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec& layer = spec.layers.emplace_back();
    if (types[i] == kFull) {
      SetAttention(i, attention, layer);
    } else {
      SetDeltaRule(i, delta, layer);
    }
    layer.feed_forward = NameGatedMlp(HfName(i, "mlp."), intermediate);
  }
  return spec;
}

}  // namespace rivulet
