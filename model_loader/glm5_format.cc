// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The text model of GLM-5.3-Flash (glm5_next, glm5_next_text) as Z.ai publishes it and transformers
// writes it: KDA, or latent attention without positions over chosen pools of tokens, at self_attn;
// an MLP or experts at mlp, both with clamped gates; hyper-connections around each. Published
// configs hold the text model in text_config, or at the top level. Vision (model.visual.*) and the
// layer behind the last one, which predicts further tokens, are left out.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr const char* kLinear = "linear_attention";
constexpr const char* kLinearConfig = "linear_attn_config";

// Whether each layer is one of KDA. By default all but every fourth are.
std::vector<bool> LinearLayers(ConfigReader& config, size_t layers) {
  const std::vector<std::string> types =
      HfLayerTypes(config, "layer_types", {kLinear, "indexed_attention", "full_attention"});
  std::vector<bool> linear(layers);
  for (size_t i = 0; i < layers; ++i) linear[i] = types.empty() ? i % 4 != 3 : types[i] == kLinear;
  return linear;
}

// Whether each layer has experts. By default all but the first three have.
std::vector<bool> SparseLayers(ConfigReader& config, size_t layers) {
  const std::vector<std::string> types =
      HfLayerTypes(config, "mlp_layer_types", {"dense", "sparse"});
  std::vector<bool> sparse(layers);
  for (size_t i = 0; i < layers; ++i) sparse[i] = types.empty() ? i >= 3 : types[i] == "sparse";
  return sparse;
}

// Where index_topk_pattern is a text, one letter for each layer.
std::vector<bool> SharedByLetters(ConfigReader& config, const std::string& letters, size_t layers) {
  constexpr const char* kKey = "index_topk_pattern";
  config.Require(letters.size() == layers, kKey, "it must have one letter for each layer");
  config.Require(letters.find_first_not_of("FS") == std::string::npos, kKey,
                 "its letters must be F (full) and S (shared)");
  std::vector<bool> shared(layers);
  for (size_t i = 0; i < std::min(layers, letters.size()); ++i) shared[i] = letters[i] == 'S';
  return shared;
}

// Whether each layer's attention takes the choice of the last one that made one.
std::vector<bool> SharedLayers(ConfigReader& config, size_t layers) {
  const json* pattern = config.Find("index_topk_pattern");
  const bool by_types = config.Has("indexer_types");
  if (!by_types && pattern != nullptr && pattern->is_string()) {
    return SharedByLetters(config, pattern->get<std::string>(), layers);
  }
  const std::vector<std::string> types =
      HfLayerTypes(config, by_types ? "indexer_types" : "index_topk_pattern", {"full", "shared"});
  const size_t every = config.Size("index_topk_freq", 1, 0);
  const size_t offset = config.Size("index_skip_topk_offset", 2, 0);
  std::vector<bool> shared(layers);
  for (size_t i = 0; i < layers; ++i) {
    const size_t place = i + 1 > offset ? i + 1 - offset : 0;
    shared[i] = types.empty() ? place % std::max<size_t>(1, every) != 0 : types[i] == "shared";
  }
  return shared;
}

// null: no bound, unless linear_attn_config asks for a safe gate, as it does by default.
std::optional<float> LowerBound(ConfigReader& config, const json& inner) {
  constexpr double kUsual = -5.0, kLowest = -1e6, kHighest = -1e-6;
  const auto read = [&](ConfigReader& reader, const char* key, std::optional<double> otherwise) {
    return reader.IsNull(key) ? std::optional<double>()
           : reader.Has(key)  ? std::optional<double>(reader.Number(key, kUsual, kLowest, kHighest))
                              : otherwise;
  };
  std::optional<double> bound = read(config, "linear_lower_bound", kUsual);
  if (config.Has(kLinearConfig)) {
    ConfigReader reader(inner);
    bound = read(reader, "gate_lower_bound", bound);
    if (!bound.has_value() && reader.Bool("safe_gate", true)) bound = kUsual;
    config.Fail(reader.status());
  }
  return bound.has_value() ? std::optional<float>(static_cast<float>(*bound)) : std::nullopt;
}

KdaConfig ParseLinear(ConfigReader& config, float norm_eps) {
  const json inner = PublishedLinearAttention(config);
  const auto size = [&](const char* key, const char* other, size_t otherwise, size_t least,
                        size_t most) {
    return LinearAttentionSize(config, inner, key, other, otherwise, least, most);
  };
  KdaConfig kda;
  kda.tensors = KdaTensors::kKimi;
  kda.gate_bias = false;
  kda.norm_eps = norm_eps;
  kda.lower_bound = LowerBound(config, inner);
  kda.shape.heads = kda.shape.groups = size("num_heads", "linear_num_heads", 64, 1, kLargestSize);
  const size_t width = size("head_dim", "linear_head_dim", 128, 1, kMaxKeyDim);
  kda.shape.key_dim = kda.shape.value_dim = kda.gate_rank = width;
  kda.conv_size =
      size("short_conv_kernel_size", "linear_conv_kernel_dim", 4, 2, kMaxConvolutionWindow);
  CheckDeltaRuleColumns(config, "linear_num_heads", kda.shape.heads, width);
  return kda;
}

PoolSelectionConfig ParseSelection(ConfigReader& config, size_t query_rank) {
  constexpr size_t kMostTokens = size_t{1} << 20;
  PoolSelectionConfig selection;
  selection.query_rank = query_rank;
  selection.pool = config.Size("index_kpool", 16, 1, kMostTokens);
  config.RequireDivides(selection.pool, "index_kpool", "the tokens of a page", kMostPoolTokens);
  const size_t tokens = config.Size("index_topk", 2048, 1, kMostTokens);
  config.RequireDivides(selection.pool, "index_kpool", "index_topk", tokens);
  selection.most = std::max<size_t>(1, tokens / std::max<size_t>(1, selection.pool));
  selection.heads = config.Size("index_n_heads", 32, 1, kMostHeads);
  selection.key_dim = config.Size("index_head_dim", 128, 1, kMostIndexDim);
  const bool tail = config.Bool("index_kpool_always_select_tail", true) || selection.pool == 1;
  config.Require(tail, "index_kpool_always_select_tail",
                 "attention that leaves out the tokens behind the last full pool is not served; it "
                 "must be true");
  return selection;
}

LatentAttentionConfig ParseAttention(ConfigReader& config, float norm_eps) {
  LatentAttentionConfig latent = ParseUnrotatedLatentAttention(
      config, {.heads = 64, .key_dim = 256, .shared_key = 0, .value_dim = 256, .query_rank = 1536});
  config.Require(latent.shared_key == 0, "qk_rope_head_dim",
                 "rotated latent attention is not served; it must be 0");
  const size_t kv_heads = config.Size("num_key_value_heads", latent.heads);
  config.Require(kv_heads == latent.heads, "num_key_value_heads",
                 absl::StrCat("it must be num_attention_heads ", latent.heads));
  latent.norm_eps = norm_eps;
  latent.selection = ParseSelection(config, latent.query_rank);
  return latent;
}

SinkhornForm ParseStreams(ConfigReader& config, float norm_eps) {
  SinkhornForm form;
  form.streams = config.Size("hc_mult", 4, 1, kMostStreams);
  form.sinkhorn_rounds = config.Size("hc_sinkhorn_iters", 20, 1, kMostSinkhornRounds);
  form.eps = config.Eps("hc_eps", 1e-6);
  form.norm_eps = norm_eps;
  return form;
}

SinkhornConnectionSpec NameConnection(const SinkhornForm& form, const std::string& prefix) {
  return {form, prefix + "_fn", prefix + "_base", prefix + "_scale"};
}

// Both kinds of feed-forwards have one limit.
struct FeedForwards {
  size_t intermediate = 0;  // of an MLP
  MixtureOfExpertsSpec experts = {};
  float limit = 0;

  GatedMlpSpec Mlp(const std::string& prefix, size_t width) const {
    GatedMlpSpec mlp = NameGatedMlp(prefix, width);
    mlp.form.limit = limit;
    return mlp;
  }
  MixtureOfExpertsSpec Experts(const std::string& prefix, size_t shared) const {
    MixtureOfExpertsSpec spec = experts;
    spec.limit = limit;
    spec.router = {prefix + "gate"};
    spec.correction = prefix + "gate.e_score_correction_bias";
    spec.gate_up = {prefix + "experts.gate_up_proj"};
    spec.down = {prefix + "experts.down_proj"};
    spec.expert_list = prefix + "experts.";
    spec.shared = Mlp(prefix + "shared_experts.", shared * spec.intermediate);
    return spec;
  }
};

FeedForwards ParseFeedForwards(ConfigReader& config, bool any_experts) {
  FeedForwards all;
  all.intermediate = config.Size("intermediate_size", 12288);
  all.limit = config.Float("swiglu_limit", 10.0, 1e-6, 1e6);
  if (!any_experts) return all;
  const std::string_view experts = config.Spelling({"n_routed_experts", "num_local_experts"});
  all.experts.choice = ParseSigmoidChoice(config, experts, 288, 8);
  if (!config.Has("routed_scaling_factor")) all.experts.choice.scaling = 2.5f;
  all.experts.intermediate = config.Size("moe_intermediate_size", 2048);
  return all;
}

void AddLayers(ConfigReader& config, ModelSpec& spec) {
  const size_t layers = ParseLayerCount(config);
  const std::vector<bool> linear = LinearLayers(config, layers);
  const std::vector<bool> sparse = SparseLayers(config, layers);
  const std::vector<bool> shared = SharedLayers(config, layers);
  const KdaConfig kda = ParseLinear(config, spec.norm_eps);
  LatentAttentionConfig attention = ParseAttention(config, spec.norm_eps);
  const SinkhornForm streams = ParseStreams(config, spec.norm_eps);
  const bool any = std::find(sparse.begin(), sparse.end(), true) != sparse.end();
  const FeedForwards feed_forwards = ParseFeedForwards(config, any);
  const size_t shared_experts = config.Size("n_shared_experts", 1, 1, 1024);
  spec.streams = streams.streams;
  bool chosen = false;
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    layer.mixer_prefix = HfName(i, "self_attn.");
    layer.mixer_type = linear[i] ? "kda" : "latent_attention";
    attention.takes_choice = shared[i];
    config.Require(linear[i] || !shared[i] || chosen, "indexer_types",
                   absl::StrCat("layer ", i, " shares a choice, but no layer before it makes one"));
    chosen = chosen || (!linear[i] && !shared[i]);
    layer.mixer = linear[i] ? MixerConfig(kda) : MixerConfig(attention);
    layer.mixer_residual.connection = NameConnection(streams, HfName(i, "hc_attn"));
    layer.feed_forward_residual.connection = NameConnection(streams, HfName(i, "hc_ffn"));
    const std::string prefix = HfName(i, "mlp.");
    if (sparse[i]) {
      layer.feed_forward = feed_forwards.Experts(prefix, shared_experts);
    } else {
      layer.feed_forward = feed_forwards.Mlp(prefix, feed_forwards.intermediate);
    }
    spec.layers.push_back(std::move(layer));
  }
}

}  // namespace

ModelSpec ParseGlm5Spec(ConfigReader& config) {
  const json text = TextConfig(config);
  ConfigReader reader(text);
  ModelSpec spec = ParseHfDecoder(reader, 1e-5);
  AddLayers(reader, spec);
  spec.other_roots = {"model.language_model.", "language_model.model."};
  spec.ignored.push_back({"model.visual.", "the vision encoder"});
  const std::string behind = absl::StrCat("layers.", spec.layers.size(), ".");
  for (const char* root : {"model.", "model.language_model."}) {
    spec.ignored.push_back({root + behind, "multi-token prediction"});
  }
  config.Fail(reader.status());
  return spec;
}

}  // namespace rivulet
