// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// fla's rwkv6 and rwkv7, which published RWKV models are converted to: model.embeddings,
// model.layers.{i}.{attn_norm, attn, ffn_norm, ffn}, model.norm, lm_head, all norms LayerNorms, and
// one of the embeddings in layer 0 (pre_norm). `attn` makes layers softmax attention; fla 0.6.0
// itself fails where an RWKV-7 has such layers.
//
// Keys that choose kernels or training alone are not read: attn_mode, fuse_cross_entropy,
// use_l2warp, max_position_embeddings, ...
#include <cmath>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

NormSpec LayerNormCalled(const std::string& name, bool bias) {
  return {.weight = name + ".weight",
          .bias = bias ? name + ".bias" : "",
          .kind = NormSpec::Kind::kLayer};
}

// intermediate_size, or hidden_ratio · hidden rounded up to a multiple of 32.
size_t ParseIntermediate(ConfigReader& config, size_t hidden, double otherwise) {
  if (config.Has("intermediate_size")) return config.Size("intermediate_size");
  const double ratio =
      config.IsNull("hidden_ratio") ? otherwise : config.Number("hidden_ratio", otherwise);
  if (!(ratio > 0 && ratio <= 64)) {
    config.Fail("hidden_ratio", "it must be greater than 0 and at most 64");
    return 1;
  }
  const auto width = static_cast<size_t>(std::floor(static_cast<double>(hidden) * ratio));
  return (width + 31) / 32 * 32;
}

// By fla's names, of which "gelu" is the one by tanh.
Activation ParseFlaActivation(ConfigReader& config) {
  return config.Choice<Activation>("hidden_act", "sqrelu",
                                   {{"sqrelu", Activation::kReluSquared},
                                    {"relu", Activation::kRelu},
                                    {"sigmoid", Activation::kSigmoid},
                                    {"logsigmoid", Activation::kLogSigmoid},
                                    {"silu", Activation::kSilu},
                                    {"swish", Activation::kSilu},
                                    {"gelu", Activation::kGeluTanh}});
}

// `mixing` has the names below a layer's ffn.
LayerSpec NameLayer(size_t layer, bool bias, const ChannelMixingSpec& mixing) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_prefix = prefix + "attn.";
  spec.mixer_norm = LayerNormCalled(prefix + "attn_norm", bias);
  spec.feed_forward_norm = LayerNormCalled(prefix + "ffn_norm", bias);
  ChannelMixingSpec named = mixing;
  for (std::string* name :
       {&named.mix, &named.key, &named.value, &named.gate_mix, &named.receptance}) {
    if (!name->empty()) *name = absl::StrCat(prefix, "ffn.", *name);
  }
  spec.feed_forward = named;
  return spec;
}

ModelSpec ParseModel(ConfigReader& config, const ChannelMixingSpec& names, double hidden_ratio) {
  ModelSpec spec = ParseCommonFields(config, 1e-5);
  const bool bias = config.Bool("norm_bias", true);
  NameEnds(config, "model.embeddings.weight", LayerNormCalled("model.norm", bias), false, spec);
  if (config.Bool("norm_first", true)) {
    spec.embedding_norm = LayerNormCalled("model.layers.0.pre_norm", bias);
  }
  ChannelMixingSpec mixing = names;
  mixing.intermediate = ParseIntermediate(config, spec.hidden, hidden_ratio);
  mixing.f = ParseFlaActivation(config);
  AddFlaLayers(
      config, [&](size_t layer) { return NameLayer(layer, bias, mixing); }, spec);
  return spec;
}

}  // namespace

ModelSpec ParseRwkv6Spec(ConfigReader& config) {
  ChannelMixingSpec names;
  names.mix = "key.mu";
  names.key = "key.linear";
  names.value = "value";
  names.gate_mix = "receptance.mu";
  names.receptance = "receptance.linear";
  return ParseModel(config, names, 3.5);
}

ModelSpec ParseRwkv7Spec(ConfigReader& config) {
  ChannelMixingSpec names;
  names.mix = "x_k";
  names.key = "key";
  names.value = "value";
  ModelSpec spec = ParseModel(config, names, 4.0);
  if (!config.ok()) return spec;
  config.Require(std::holds_alternative<Rwkv7Config>(spec.layers[0].mixer), "attn",
                 "layer 0 must be RWKV-7: later layers mix in its values");
  // The first layer has no use for these, but BlinkDL's files hold them.
  spec.ignored.push_back({"model.layers.0.attn.v_lora."});
  return spec;
}

}  // namespace rivulet
