// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Nemotron-H and Nemotron 3 (nemotron_h) in transformers: blocks of one kind each, x += f(norm(x)),
// in any order: Mamba-2, softmax attention without positions, an MLP without a gate, and experts of
// such MLPs (in a narrower space with moe_latent_size) beside a shared one. The kinds are listed in
// layers_block_type, or are the letters M, *, - and E of hybrid_override_pattern. A router takes
// σ of its logits, corrects the choice by a bias, and may be limited to groups of experts.
//
// Published files begin names with "backbone.". Keys that transformers does not read are not read
// here either: attention_bias, mamba_proj_bias, expand, sliding_window. Δ has the bound
// time_step_min below and none above; time_step_limit is ignored. The output map is never tied.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

enum class Block : uint8_t { kMamba, kAttention, kMlp, kExperts };

struct BlockName {
  char letter;
  std::string_view name, older_name;
  Block block;
};
constexpr BlockName kBlocks[] = {{'M', "linear_attention", "mamba", Block::kMamba},
                                 {'*', "full_attention", "attention", Block::kAttention},
                                 {'-', "mlp", "mlp", Block::kMlp},
                                 {'E', "moe", "moe", Block::kExperts}};

std::vector<Block> FromPattern(ConfigReader& config, const char* key) {
  std::vector<Block> blocks;
  for (const char letter : config.String(key)) {
    const auto* found = std::find_if(std::begin(kBlocks), std::end(kBlocks),
                                     [&](const BlockName& name) { return name.letter == letter; });
    if (found == std::end(kBlocks)) {
      config.Fail(key, "its letters must be M (Mamba-2), * (attention), - (MLP), E (experts)");
      return {};
    }
    blocks.push_back(found->block);
  }
  return blocks;
}

std::vector<Block> FromList(ConfigReader& config, std::string_view key) {
  const json& list = *config.Find(key);
  config.Require(list.is_array(), key, "it must be a list, one entry per layer");
  if (!list.is_array() || list.size() > kMostLayers) return {};
  std::vector<Block> blocks;
  for (const std::string& type : LayerListNames(config, key, list.size())) {
    const auto* found = std::find_if(
        std::begin(kBlocks), std::end(kBlocks),
        [&](const BlockName& name) { return name.name == type || name.older_name == type; });
    if (found == std::end(kBlocks)) {
      config.Fail(absl::StrCat(ToAbsl(key), ": entry ", blocks.size(), " is \"", type,
                               "\": blocks of this architecture are linear_attention, "
                               "full_attention, mlp, moe"));
      return {};
    }
    blocks.push_back(found->block);
  }
  return blocks;
}

// num_hidden_layers does not count: transformers takes the length of the list.
std::vector<Block> ParseBlocks(ConfigReader& config) {
  const std::string_view key = config.Spelling({"layers_block_type", "layer_types"});
  const bool listed = config.Has(key);
  const std::vector<Block> blocks =
      listed ? FromList(config, key) : FromPattern(config, "hybrid_override_pattern");
  config.Require(!blocks.empty() && blocks.size() <= kMostLayers,
                 listed ? key : "hybrid_override_pattern",
                 absl::StrCat("it must name 1 to ", kMostLayers, " blocks"));
  return blocks;
}

// Older configs have other names for keys of Mamba-2.
Mamba2Config ParseMamba(ConfigReader& config, const ModelSpec& spec) {
  Mamba2Config mamba;
  mamba.heads = config.Size("mamba_num_heads", 128);
  mamba.head_dim = config.Size("mamba_head_dim", 64);
  const std::string_view groups = config.Spelling({"mamba_n_groups", "n_groups"});
  mamba.groups = config.Size(groups, 8);
  config.RequireDivides(mamba.groups, groups, "mamba_num_heads", mamba.heads);
  mamba.norm_groups = mamba.groups;
  mamba.norm_eps = spec.norm_eps;
  mamba.state_size = config.Size("ssm_state_size", 128, 1, kMaxKeyDim);
  mamba.conv_kernel =
      config.Size(config.Spelling({"mamba_d_conv", "conv_kernel"}), 4, 2, kMaxConvolutionWindow);
  mamba.use_conv_bias = config.Bool(config.Spelling({"mamba_conv_bias", "use_conv_bias"}), true);
  mamba.use_bias = mamba.output_bias = config.Bool("use_bias", false);
  mamba.delta_low =
      config.Float(config.Spelling({"mamba_dt_min", "time_step_min"}), 0.001, 0.0, 1e6);
  config.Choice<bool>("mamba_hidden_act", "silu", {{"silu", true}, {"swish", true}});
  return mamba;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, size_t hidden) {
  SoftmaxAttentionConfig attention =
      ParseHfAttention(config, hidden, {.head_dim = 128, .kv_heads = 8, .rotates = false});
  attention.qkv_bias = attention.output_bias = false;
  return attention;
}

TwoLayerMlpSpec NameMlp(const std::string& prefix, size_t intermediate, bool bias, Activation f) {
  return {intermediate, prefix + "up_proj", prefix + "down_proj", bias, f};
}

MixtureOfExpertsSpec ParseExperts(ConfigReader& config, bool bias, Activation f) {
  MixtureOfExpertsSpec spec;
  spec.choice = ParseSigmoidChoice(config, "n_routed_experts", 8, 2);
  spec.intermediate = config.Size("moe_intermediate_size", 7688);
  spec.gated = false;
  spec.f = f;
  spec.latent = config.Has("moe_latent_size") ? config.Size("moe_latent_size") : 0;
  spec.latent_bias = bias;
  const size_t shared = config.Size("moe_shared_expert_intermediate_size", 7688);
  spec.shared = NameMlp("", shared, bias, f);
  return spec;
}

MixtureOfExpertsSpec NameExperts(const std::string& prefix, MixtureOfExpertsSpec spec) {
  spec.router = {prefix + "gate"};
  spec.correction = prefix + "gate.e_score_correction_bias";
  spec.gate_up = {prefix + "experts.up_proj"};
  spec.down = {prefix + "experts.down_proj"};
  spec.expert_list = prefix + "experts.";
  auto& shared = std::get<TwoLayerMlpSpec>(spec.shared);
  shared = NameMlp(prefix + "shared_experts.", shared.intermediate, shared.bias, shared.f);
  spec.latent_down = prefix + "fc1_latent_proj";
  spec.latent_up = prefix + "fc2_latent_proj";
  return spec;
}

// What a block of each kind has; read from the config where a block has it.
class BlockMaker {
 public:
  BlockMaker(ConfigReader& config, const ModelSpec& spec)
      : config_(config),
        spec_(spec),
        mlp_bias_(config.Bool("mlp_bias", false)),
        f_(ParseActivation(config, "mlp_hidden_act", "relu2")) {}

  // `layer_prefix` begins its tensors' names.
  LayerSpec Make(const std::string& layer_prefix, Block block) const {
    LayerSpec layer;
    const NormSpec norm = {layer_prefix + "norm.weight"};
    const std::string prefix = layer_prefix + "mixer.";
    const bool mixes = block == Block::kMamba || block == Block::kAttention;
    (mixes ? layer.mixer_norm : layer.feed_forward_norm) = norm;
    if (mixes) {
      SetMixer(block, prefix, layer);
    } else if (block == Block::kMlp) {
      const size_t intermediate = config_.Size("intermediate_size", 21504);
      layer.feed_forward = NameMlp(prefix, intermediate, mlp_bias_, f_);
    } else {
      layer.feed_forward = NameExperts(prefix, ParseExperts(config_, mlp_bias_, f_));
    }
    return layer;
  }

 private:
  void SetMixer(Block block, const std::string& prefix, LayerSpec& layer) const {
    layer.mixer_prefix = prefix;
    if (block == Block::kMamba) {
      layer.mixer_type = "mamba2";
      layer.mixer = ParseMamba(config_, spec_);
    } else {
      layer.mixer_type = "softmax_attention";
      layer.mixer = ParseAttention(config_, spec_.hidden);
    }
  }

  ConfigReader& config_;
  const ModelSpec& spec_;
  bool mlp_bias_;
  Activation f_;
};

// Attention and experts, unless the config says otherwise.
std::vector<Block> ParsePredictorBlocks(ConfigReader& config) {
  constexpr const char* kList = "mtp_layers_block_type";
  constexpr const char* kPattern = "mtp_hybrid_override_pattern";
  if (config.Has(kList)) return FromList(config, kList);
  if (config.Has(kPattern)) return FromPattern(config, kPattern);
  return {Block::kAttention, Block::kExperts};
}

// None where the config has another number of steps than one, or blocks with running sums.
std::optional<PredictorSpec> ParsePredictor(ConfigReader& config, const BlockMaker& maker) {
  if (config.Size("num_nextn_predict_layers", 0, 0) != 1) return std::nullopt;
  const std::vector<Block> blocks = ParsePredictorBlocks(config);
  if (blocks.empty() || blocks.size() > kMostLayers) return std::nullopt;
  const std::string first = PredictorPrefix(0), last = PredictorPrefix(blocks.size() - 1);
  PredictorSpec predictor{.embedding_norm = {first + "enorm.weight"},
                          .hidden_norm = {first + "hnorm.weight"},
                          .fusion = first + "eh_proj.weight",
                          .layers = {},
                          .final_norm = {last + "final_layernorm.weight"}};
  for (size_t i = 0; i < blocks.size(); ++i) {
    predictor.layers.push_back(maker.Make(PredictorPrefix(i), blocks[i]));
    if (!SetPredictorMixer(predictor.layers.back())) return std::nullopt;
  }
  return predictor;
}

}  // namespace

ModelSpec ParseNemotronHSpec(ConfigReader& config) {
  RefuseHfUnserved(config);
  ModelSpec spec = ParseCommonFields(config, 1e-5);
  spec.norm_eps = config.Eps("layer_norm_epsilon", 1e-5);
  spec.other_roots = {"backbone."};
  spec.ignored = {kMultiTokenPrediction};
  spec.embeddings = "model.embeddings.weight";
  spec.final_norm = {.weight = "model.norm_f.weight"};
  spec.lm_head = "lm_head.weight";
  const std::vector<Block> blocks = ParseBlocks(config);
  const BlockMaker maker(config, spec);
  for (size_t i = 0; i < blocks.size(); ++i)
    spec.layers.push_back(maker.Make(HfName(i, ""), blocks[i]));
  spec.predictor = ParsePredictor(config, maker);
  return spec;
}

}  // namespace rivulet
