// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The text model of Qwen4-Exp (qwen4_exp, qwen4_exp_text) as transformers writes it: a hybrid as
// Qwen3.5 is (qwen3_5_format.cc) with experts in every layer, whose attention sees chosen pools of
// tokens and whose residuals are gated hyper-connections; the last of them takes the place of the
// final norm. Embeddings of n-grams (ple_layer_ids) are refused.
#include <string>

#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

void RefuseNgrams(ConfigReader& config) {
  const json* layers = config.Find("ple_layer_ids");
  config.Require(layers == nullptr || *layers == json::array(), "ple_layer_ids",
                 "embeddings of n-grams (per-layer embeddings) are not served; use a model without "
                 "them");
}

PoolSelectionConfig ParseSelection(ConfigReader& config, const SoftmaxAttentionConfig& attention) {
  constexpr size_t kMostTokens = size_t{1} << 20;
  PoolSelectionConfig selection;
  selection.gated = false;
  selection.norm_eps = attention.norm_eps;
  selection.heads = config.Size("indexer_n_heads", std::nullopt, 1, kMostHeads);
  config.Require(config.Size("indexer_kv_heads", std::nullopt, 1) == 1, "indexer_kv_heads",
                 "it must be 1");
  selection.key_dim = config.Size("indexer_head_dim", std::nullopt, 1, kMostIndexDim);
  const size_t rotated = attention.rope.has_value() ? attention.rope->rotary_dim : 0;
  config.Require(selection.key_dim >= rotated, "indexer_head_dim",
                 absl::StrCat("it must be at least the rotated dimensions of a head ", rotated));
  selection.pool = config.Size("indexer_compress_ratio", std::nullopt, 1, kMostTokens);
  config.RequireDivides(selection.pool, "indexer_compress_ratio", "the tokens of a page",
                        kMostPoolTokens);
  const size_t tokens = config.Size("indexer_budget", std::nullopt, 1, kMostTokens);
  config.RequireDivides(selection.pool, "indexer_compress_ratio", "indexer_budget", tokens);
  selection.most = std::max<size_t>(1, tokens / std::max<size_t>(1, selection.pool));
  return selection;
}

GatedConnectionSpec NameConnection(const GatedForm& form, const std::string& prefix) {
  return {form, prefix + "hc_norm.weight", prefix + "input_mix_weight_down.weight",
          prefix + "input_mix_weight_up.weight", prefix + "block_inject_weight.weight"};
}

GatedForm ParseStreams(ConfigReader& config) {
  GatedForm form;
  form.streams = config.Size("hc_count", 4, 2, kMostStreams);
  form.rank = config.Size("hc_lowrank", 320);
  form.norm_eps = HfNormEps(config);
  return form;
}

void SetResiduals(ConfigReader& config, ModelSpec& spec) {
  GatedForm form = ParseStreams(config);
  spec.streams = form.streams;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.mixer_norm = layer.feed_forward_norm = {};
    layer.mixer_residual.connection = NameConnection(form, HfName(i, "attn_hyper_connection."));
    layer.feed_forward_residual.connection =
        NameConnection(form, HfName(i, "mlp_hyper_connection."));
  }
  form.expands = false;
  spec.final_norm = {};
  spec.last_connection = NameConnection(form, "model.hyper_connection_mixer.");
}

void SetLayers(ConfigReader& config, ModelSpec& spec) {
  const std::string_view gate = config.Has("output_gate_type") ? "output_gate_type" : "hidden_act";
  const Activation gate_f = config.Choice<Activation>(
      gate, "silu", {{"silu", Activation::kSilu}, {"sigmoid", Activation::kSigmoid}});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    if (auto* attention = std::get_if<SoftmaxAttentionConfig>(&layer.mixer)) {
      attention->selection = ParseSelection(config, *attention);
    } else {
      std::get<DeltaRuleConfig>(layer.mixer).gate_f = gate_f;
    }
    MixtureOfExpertsSpec experts = ParseQwenExperts(config, HfName(i, ""), {});
    experts.choice.weights_sum_to_one = config.Bool("norm_topk_prob", true);
    layer.feed_forward = std::move(experts);
  }
}

}  // namespace

ModelSpec ParseQwen4ExpSpec(ConfigReader& config) {
  const json text = TextConfig(config);
  ConfigReader reader(text);
  RefuseNgrams(reader);
  ModelSpec spec = ParseQwenHybrid(
      reader,
      {.tensors = DeltaRuleTensors::kQwen35, .kv_heads = 2, .rotated_part = 1.0, .indexed = true});
  spec.predictor.reset();
  SetLayers(reader, spec);
  SetResiduals(reader, spec);
  spec.other_roots = {"model.language_model.", "language_model.model."};
  spec.ignored.push_back({"model.visual.", "the vision encoder"});
  config.Fail(reader.status());
  return spec;
}

}  // namespace rivulet
