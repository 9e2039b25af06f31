// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Qwen3-Next in transformers (docs/mixers.md#softmax-attention, #gated-deltanet): Gated DeltaNet
// (linear_attn) and gated softmax attention (self_attn) by layer_types or full_attention_interval;
// after either a mixture of experts with a shared one behind a gate, or a plain MLP. All norms over
// the residual stream, and those of q and k, have a weight of 1 + w. The head that predicts a
// further token (mtp.*) is one more layer of attention. Published files hold the experts' maps one
// by one, transformers 5 all in one tensor.
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

constexpr const char* kLinear = "linear_attention";
constexpr const char* kFull = "full_attention";

std::vector<std::string> LayerTypes(ConfigReader& config, bool indexed) {
  std::vector<std::string> types =
      indexed ? HfLayerTypes(config, "layer_types", {kLinear, kFull, "indexed_attention"})
              : HfLayerTypes(config, "layer_types", {kLinear, kFull});
  if (!types.empty()) return types;
  const size_t interval = config.Size("full_attention_interval", 4);
  const size_t layers = ParseLayerCount(config);
  for (size_t i = 0; i < layers; ++i) types.push_back((i + 1) % interval == 0 ? kFull : kLinear);
  return types;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, const QwenHybridDefaults& defaults,
                                      size_t hidden) {
  SoftmaxAttentionConfig attention = ParseHfAttention(
      config, hidden,
      {.head_dim = 256, .rotated_part = defaults.rotated_part, .kv_heads = defaults.kv_heads});
  attention.qk_norm = HeadNorm::kRmsOnePlus;
  attention.output_gate = true;
  return attention;
}

DeltaRuleConfig ParseDeltaRule(ConfigReader& config, DeltaRuleTensors tensors) {
  DeltaRuleConfig delta;
  delta.tensors = tensors;
  delta.decays = true;
  delta.shape.groups = config.Size("linear_num_key_heads", 16);
  delta.shape.heads = config.Size("linear_num_value_heads", 32);
  config.Require(
      delta.shape.heads % delta.shape.groups == 0, "linear_num_value_heads",
      absl::StrCat("it must be a multiple of linear_num_key_heads ", delta.shape.groups));
  delta.shape.key_dim = config.Size("linear_key_head_dim", 128, 1, kMaxKeyDim);
  delta.shape.value_dim = config.Size("linear_value_head_dim", 128);
  CheckDeltaRuleColumns(config, "linear_num_key_heads", delta.shape.groups, delta.shape.key_dim);
  CheckDeltaRuleColumns(config, "linear_num_value_heads", delta.shape.heads, delta.shape.value_dim);
  delta.conv_size = config.Size("linear_conv_kernel_dim", 4, 2, kMaxConvolutionWindow);
  delta.use_gate = true;
  delta.norm_eps = HfNormEps(config);
  return delta;
}

// Which layers have experts and not a plain MLP.
std::vector<bool> SparseLayers(ConfigReader& config, size_t layers) {
  const size_t experts = config.Size("num_experts", 512, 0, kMostExperts);
  const size_t step = config.Size("decoder_sparse_step", 1);
  std::vector<bool> sparse(layers);
  for (size_t i = 0; i < layers; ++i) sparse[i] = experts > 0 && (i + 1) % step == 0;
  for (const size_t dense : config.Layers("mlp_only_layers", layers)) sparse[dense] = false;
  return sparse;
}

// None where the config has another number of layers than one, or embeddings of its own for them.
std::optional<PredictorSpec> ParsePredictor(ConfigReader& config,
                                            const SoftmaxAttentionConfig& attention) {
  const std::string_view layers =
      config.Spelling({"mtp_num_hidden_layers", "num_nextn_predict_layers"});
  const bool embeds = config.Bool("mtp_use_dedicated_embeddings", false);
  if (config.Size(layers, 1, 0) != 1 || embeds) return std::nullopt;
  const std::string prefix = PredictorPrefix(0);
  const auto norm = [](const char* name) {
    return NormSpec{.weight = name, .kind = NormSpec::Kind::kRmsOnePlus};
  };
  PredictorSpec predictor{.embedding_norm = norm("mtp.pre_fc_norm_embedding.weight"),
                          .hidden_norm = norm("mtp.pre_fc_norm_hidden.weight"),
                          .fusion = "mtp.fc.weight",
                          .layers = {HfLayer(prefix, NormSpec::Kind::kRmsOnePlus)},
                          .final_norm = norm("mtp.norm.weight")};
  SetHfAttention(prefix, attention, predictor.layers[0]);
  SetPredictorMixer(predictor.layers[0]);
  return predictor;
}

void SetMixers(ConfigReader& config, const QwenHybridDefaults& defaults, ModelSpec& spec) {
  const std::vector<std::string> types = LayerTypes(config, defaults.indexed);
  const SoftmaxAttentionConfig attention = ParseAttention(config, defaults, spec.hidden);
  const DeltaRuleConfig delta = ParseDeltaRule(config, defaults.tensors);
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRmsOnePlus);
    if (types[i] != kLinear) {
      SetHfAttention(i, attention, layer);
    } else {
      layer.mixer_type = "gated_deltanet";
      layer.mixer_prefix = HfName(i, "linear_attn.");
      layer.mixer = delta;
    }
    spec.layers.push_back(std::move(layer));
  }
  spec.predictor = ParsePredictor(config, attention);
}

FeedForwardSpec ParseFeedForward(ConfigReader& config, const std::string& prefix, bool sparse) {
  if (!sparse) return NameGatedMlp(prefix + "mlp.", config.Size("intermediate_size", 5632));
  MixtureOfExpertsSpec experts = ParseQwenExperts(config, prefix, {});
  experts.choice.weights_sum_to_one = config.Bool("norm_topk_prob", true);
  return experts;
}

// The predictor's is that of layer 0.
void SetFeedForwards(ConfigReader& config, ModelSpec& spec) {
  const std::vector<bool> sparse = SparseLayers(config, spec.layers.size());
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].feed_forward = ParseFeedForward(config, HfName(i, ""), sparse[i]);
  }
  if (!spec.predictor.has_value()) return;
  spec.predictor->layers[0].feed_forward =
      ParseFeedForward(config, PredictorPrefix(0), !sparse.empty() && sparse[0]);
}

}  // namespace

MixtureOfExpertsSpec ParseQwenExperts(ConfigReader& config, const std::string& prefix,
                                      const QwenExpertDefaults& defaults) {
  MixtureOfExpertsSpec spec;
  spec.choice.experts = config.Size("num_experts", defaults.experts, 1, kMostExperts);
  spec.choice.experts_per_token =
      HfExpertsPerToken(config, spec.choice.experts, defaults.experts_per_token);
  spec.intermediate = config.Size("moe_intermediate_size", 512);
  spec.router = {prefix + "mlp.gate"};
  spec.gate_up = {prefix + "mlp.experts.gate_up_proj"};
  spec.down = {prefix + "mlp.experts.down_proj"};
  spec.expert_list = prefix + "mlp.experts.";
  spec.shared = NameGatedMlp(prefix + "mlp.shared_expert.",
                             config.Size("shared_expert_intermediate_size", 512));
  spec.shared_gate = prefix + "mlp.shared_expert_gate";
  return spec;
}

ModelSpec ParseQwenHybrid(ConfigReader& config, const QwenHybridDefaults& defaults) {
  ModelSpec spec = ParseHfDecoder(config);
  spec.final_norm.kind = NormSpec::Kind::kRmsOnePlus;
  spec.ignored = {kMultiTokenPrediction};
  SetMixers(config, defaults, spec);
  return spec;
}

ModelSpec ParseQwen3NextSpec(ConfigReader& config) {
  ModelSpec spec =
      ParseQwenHybrid(config, {.tensors = DeltaRuleTensors::kQwen3Next, .kv_heads = 2});
  SetFeedForwards(config, spec);
  return spec;
}

}  // namespace rivulet
