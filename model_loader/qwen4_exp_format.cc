// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The text model of Qwen4-Exp (qwen4_exp, qwen4_exp_text) as transformers writes it: a hybrid as
// Qwen3.5 is (qwen3_5_format.cc) with experts in every layer, whose attention sees chosen pools of
// tokens and whose residuals are gated hyper-connections; the last of them takes the place of the
// final norm. Layers in ple_layer_ids add embeddings of n-grams to the streams first.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr size_t kMostNgramLayers = 256;

// ple_layer_ids count layers from 1, in any order.
std::vector<size_t> NgramLayers(ConfigReader& config, size_t layers) {
  std::vector<size_t> ids = config.Layers("ple_layer_ids", layers + 1);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  config.Require(ids.empty() || ids[0] > 0, "ple_layer_ids", "it counts layers from 1");
  config.Require(ids.size() <= kMostNgramLayers, "ple_layer_ids",
                 absl::StrCat("at most ", kMostNgramLayers, " are served"));
  return ids;
}

NgramForm ParseNgrams(ConfigReader& config, const ModelSpec& spec) {
  constexpr size_t kMostRows = size_t{1} << 28;
  NgramForm form;
  form.streams = spec.streams;
  form.norm_eps = HfNormEps(config);
  form.hash.vocab = spec.vocab;
  form.hash.ngram = config.Size("ngram_size", 3, 2, kMostNgram);
  form.hash.heads = config.Size("heads_per_ngram", 8, 1, kMostNgramHeads);
  form.hash.base = config.Size("ngram_vocab_size_base", 20'000'000, 2, kMostRows);
  form.hash.multiple = config.Size("make_ngram_vocab_size_divisible_by", 128);
  form.hash.seed = config.Size("seed", 1234, 0, kMostRows);
  const size_t heads = (form.hash.ngram - 1) * form.hash.heads;
  const size_t width = config.Size("ple_embed_dim", spec.hidden);
  config.Require(width % heads == 0, "ple_embed_dim",
                 absl::StrCat("it must be a multiple of the heads of all orders ", heads));
  form.row = width / heads;
  form.dilation = form.hash.ngram;
  form.taps = config.Size("ple_conv_kernel_size", 4, 2, kMaxConvolutionWindow);
  config.Require(form.window() <= kMaxConvolutionWindow, "ple_conv_kernel_size",
                 absl::StrCat("so many taps ", form.dilation, " tokens apart reach more than ",
                              kMaxConvolutionWindow, " tokens"));
  config.Require(spec.vocab < size_t{1} << 24, "vocab_size",
                 "embeddings of n-grams are served for less than 2^24 tokens");
  config.Require(form.hash.base * heads < size_t{1} << 31, "ngram_vocab_size_base",
                 "the tables of all heads must have less than 2^31 rows");
  config.Require(!spec.eos_ids.empty(), "eos_token_id", "embeddings of n-grams need one");
  form.end_of_text = spec.eos_ids.empty() ? 0 : spec.eos_ids[0];
  return form;
}

void SetNgrams(ConfigReader& config, ModelSpec& spec) {
  const std::vector<size_t> ids = NgramLayers(config, spec.layers.size());
  if (ids.empty()) return;
  NgramForm form = ParseNgrams(config, spec);
  for (size_t i = 0; i < ids.size() && config.ok(); ++i) {
    form.hash.layer = i;
    spec.layers[ids[i] - 1].ngrams = NgramSpec{form, HfName(ids[i] - 1, "ple.")};
  }
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
  ModelSpec spec = ParseQwenHybrid(
      reader,
      {.tensors = DeltaRuleTensors::kQwen35, .kv_heads = 2, .rotated_part = 1.0, .indexed = true});
  spec.predictor.reset();
  SetLayers(reader, spec);
  SetResiduals(reader, spec);
  SetNgrams(reader, spec);
  spec.other_roots = {"model.language_model.", "language_model.model."};
  spec.ignored.push_back({"model.visual.", "the vision encoder"});
  config.Fail(reader.status());
  return spec;
}

}  // namespace rivulet
