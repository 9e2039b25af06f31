// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Jamba in transformers: Mamba (mamba, with trained norms of δ, B and C) and softmax attention
// without positions or biases (self_attn) in turn, after either a gated MLP or experts of such
// MLPs (feed_forward). The experts' weights are their shares of all experts' and add up to less
// than one.
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

// Which layers are of a kind: every `period`-th from `offset` on.
struct Turn {
  size_t period;
  size_t offset;

  bool Has(size_t layer) const { return layer % period == offset; }
};

Turn ReadTurn(ConfigReader& config, const std::string& kind, size_t period, size_t offset) {
  Turn turn{};
  turn.period = config.Size(kind + "_layer_period", period);
  turn.offset = config.Size(kind + "_layer_offset", offset, 0);
  config.Require(turn.offset < turn.period, kind + "_layer_offset",
                 absl::StrCat("it must be below ", kind, "_layer_period ", turn.period));
  return turn;
}

MambaConfig ParseJambaMamba(ConfigReader& config, size_t hidden) {
  MambaConfig mamba;
  mamba.inner = HfMambaInner(config, hidden);
  mamba.rank = ReadMambaRank(config, "mamba_dt_rank", hidden);
  mamba.state_size = config.Size("mamba_d_state", 16, 1, kMaxKeyDim);
  mamba.conv_kernel = config.Size("mamba_d_conv", 4, 2, kMaxConvolutionWindow);
  mamba.use_bias = config.Bool("mamba_proj_bias", false);
  mamba.use_conv_bias = config.Bool("mamba_conv_bias", true);
  mamba.use_scan_norms = true;
  mamba.scan_norms_are_trained = true;
  mamba.scan_norm_eps = HfNormEps(config);
  return mamba;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention =
      ParseHfAttention(config, hidden, {.kv_heads = 8, .rotates = false});
  attention.qkv_bias = attention.output_bias = false;
  return attention;
}

FeedForwardSpec NameExperts(ConfigReader& config, size_t layer, size_t experts,
                            size_t intermediate) {
  MixtureOfExpertsSpec spec;
  spec.choice.experts = experts;
  spec.choice.experts_per_token = HfExpertsPerToken(config, experts, 2);
  spec.choice.weights_sum_to_one = false;
  spec.intermediate = intermediate;
  spec.router = {HfName(layer, "feed_forward.router")};
  spec.gate_up = {HfName(layer, "feed_forward.experts.gate_up_proj")};
  spec.down = {HfName(layer, "feed_forward.experts.down_proj")};
  spec.expert_list = HfName(layer, "feed_forward.experts.");
  return spec;
}

}  // namespace

ModelSpec ParseJambaSpec(ConfigReader& config) {
  ModelSpec spec = ParseHfDecoder(config);
  spec.final_norm.weight = "model.final_layernorm.weight";
  const Turn attends = ReadTurn(config, "attn", 8, 4), chooses = ReadTurn(config, "expert", 2, 1);
  const SoftmaxAttentionConfig attention = ParseAttention(config, spec.hidden);
  const MambaConfig mamba = ParseJambaMamba(config, spec.hidden);
  const size_t intermediate = config.Size("intermediate_size", 14336);
  const size_t experts = config.Size("num_experts", 16, 1, kMostExperts);
  const size_t layers = ParseLayerCount(config);
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    layer.feed_forward_norm.weight = HfName(i, "pre_ff_layernorm.weight");
    if (attends.Has(i)) {
      SetHfAttention(i, attention, layer);
    } else {
      layer.mixer_type = "mamba";
      layer.mixer_prefix = HfName(i, "mamba.");
      layer.mixer = mamba;
    }
    if (experts > 1 && chooses.Has(i)) {
      layer.feed_forward = NameExperts(config, i, experts, intermediate);
    } else {
      layer.feed_forward = NameGatedMlp(HfName(i, "feed_forward."), intermediate);
    }
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace rivulet
