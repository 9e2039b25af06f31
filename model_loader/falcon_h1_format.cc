// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Falcon-H1 in transformers: in every layer Mamba-2 (mamba) and softmax attention (self_attn) read
// the same norm and their outputs add up; then a gated MLP (feed_forward). Multipliers, which its
// training fixed, are everywhere: of the embeddings, of what each mixer reads and writes, of the
// five parts of Mamba-2's projection, of keys, of the MLP's gate and output, of the logits.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "model_loader/formats.h"

namespace rivulet {
namespace {

constexpr double kNormEps = 1e-5;

float Multiplier(ConfigReader& config, std::string_view key) {
  return config.Float(key, 1.0, -1e6, 1e6);
}

// The list's numbers; ones where it is absent.
template <size_t count>
std::array<float, count> Multipliers(ConfigReader& config, std::string_view key) {
  std::array<float, count> multipliers;
  multipliers.fill(1.0f);
  if (!config.Has(key)) return multipliers;
  const std::vector<double> given = config.Numbers(key);
  config.Require(given.size() == count, key, absl::StrCat("it must be a list of ", count));
  for (size_t i = 0; i < std::min(count, given.size()); ++i) {
    config.Require(std::abs(given[i]) <= 1e6, key, "it must hold numbers up to 1e6");
    multipliers[i] = static_cast<float>(given[i]);
  }
  return multipliers;
}

Mamba2Config ParseMamba(ConfigReader& config, const ModelSpec& spec) {
  const bool given = !config.IsNull("mamba_d_ssm");
  const size_t inner = given ? config.Size("mamba_d_ssm", 1024) : HfMambaInner(config, spec.hidden);
  Mamba2Config mamba =
      ParseHfMamba2(config, inner,
                    given ? "mamba_d_ssm" : "mamba_expand times hidden_size (mamba_d_ssm is null)");
  mamba.norm_eps = spec.norm_eps;
  mamba.use_norm = config.Bool("mamba_rms_norm", false);
  mamba.norm_before_gate = config.Bool("mamba_norm_before_gate", true);
  mamba.output_bias = config.Bool("projectors_bias", false);
  mamba.multipliers = Multipliers<5>(config, "ssm_multipliers");
  return mamba;
}

// Rotations are linear, so that a multiplier of keys is one of scores.
SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention =
      ParseHfAttention(config, hidden, {.kv_heads = 8, .norm_eps = kNormEps});
  attention.scale *= Multiplier(config, "key_multiplier");
  return attention;
}

GatedMlpSpec ParseMlp(ConfigReader& config) {
  GatedMlpSpec mlp;
  mlp.intermediate = config.Size("intermediate_size", 14336);
  mlp.bias = config.Bool("mlp_bias", false);
  const auto [gate, down] = Multipliers<2>(config, "mlp_multipliers");
  mlp.form = {.gate_multiplier = gate, .output_multiplier = down};
  return mlp;
}

LayerSpec MakeLayer(ConfigReader& config, size_t index, const Mamba2Config& mamba,
                    const SoftmaxAttentionConfig& attention, const GatedMlpSpec& mlp) {
  LayerSpec layer = HfLayer(index, NormSpec::Kind::kRms);
  SetHfMamba2(index, mamba, layer);
  layer.mixer_input = Multiplier(config, "ssm_in_multiplier");
  layer.mixer_output = Multiplier(config, "ssm_out_multiplier");
  layer.beside.push_back({.mixer_type = "softmax_attention",
                          .mixer = attention,
                          .mixer_prefix = HfName(index, "self_attn."),
                          .input = Multiplier(config, "attention_in_multiplier"),
                          .output = Multiplier(config, "attention_out_multiplier")});
  layer.feed_forward_norm.weight = HfName(index, "pre_ff_layernorm.weight");
  GatedMlpSpec named = NameGatedMlp(HfName(index, "feed_forward."), mlp.intermediate);
  named.bias = mlp.bias;
  named.form = mlp.form;
  layer.feed_forward = named;
  return layer;
}

}  // namespace

ModelSpec ParseFalconH1Spec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config, kNormEps);
  spec.final_norm.weight = "model.final_layernorm.weight";
  spec.embedding_multiplier = Multiplier(config, "embedding_multiplier");
  spec.logits_multiplier = Multiplier(config, "lm_head_multiplier");
  const Mamba2Config mamba = ParseMamba(config, spec);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec.hidden);
  const GatedMlpSpec mlp = ParseMlp(config);
  const size_t layers = ParseLayerCount(config);
  for (size_t i = 0; i < layers; ++i) {
    spec.layers.push_back(MakeLayer(config, i, mamba, attention, mlp));
  }
  return spec;
}

}  // namespace rivulet
