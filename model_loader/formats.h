// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The public formats of checkpoints, one file each, listed in model_spec.cc. Errors go to the
// reader; see config_reader.h. Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_FORMATS_H_
#define RIVULET_MODEL_LOADER_FORMATS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_loader/config_reader.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// More layers, and more experts in one of them, than any model has; they bound what a config can
// make us allocate.
inline constexpr size_t kMostLayers = 1024;
inline constexpr size_t kMostExperts = 4096;

// What predicts further tokens, beside the model (Qwen, Nemotron).
inline const IgnoredPart kMultiTokenPrediction = {"mtp.", "multi-token prediction"};

// What every format spells alike: sizes, eps of the norms, begin and end tokens. No layers, and no
// tensor names.
ModelSpec ParseCommonFields(ConfigReader& config, double default_norm_eps);

// The ids of "eos_token_id", a number, a list of numbers or absent, each below `vocab`.
std::vector<uint32_t> ParseEosIds(ConfigReader& config, size_t vocab);

// Sets the names outside of the layers. The output map is the embeddings where tie_word_embeddings
// says so.
void NameEnds(ConfigReader& config, const char* embeddings, const NormSpec& final_norm,
              bool default_tied, ModelSpec& spec);

// <prefix>{gate,up,down}_proj.
GatedMlpSpec NameGatedMlp(const std::string& prefix, size_t intermediate);

// num_hidden_layers.
size_t ParseLayerCount(ConfigReader& config);

// For keys that hold one entry for each layer (layer_types, layer_config):
// the list, of `layers` entries; null where the config has no such key and after an error. Points
// into the config.
const nlohmann::json* LayerList(ConfigReader& config, std::string_view key, size_t layers);

// The list's entries, which must be strings; empty where LayerList is null.
std::vector<std::string> LayerListNames(ConfigReader& config, std::string_view key, size_t layers);

// For layouts whose layers are all alike: layer_types may be absent or name `mixer` throughout.
// Anything else is a mixture, which needs a model_type in fla's layout.
void RefuseMixture(ConfigReader& config, size_t layers, std::string_view mixer);

// x += multiplier · f(norm(x)) in every block is x += f(norm(x)) for a residual stream in units of
// `multiplier`: embeddings and eps change, the forward pass does not. REQUIRES: multiplier > 0.
void FoldResidualMultiplier(double multiplier, ModelSpec& spec);

// fla_format.cc: every mixer's name as a model type, fla's transformer, and mixtures of mixers.
ModelSpec ParseFlaSpec(ConfigReader& config);

// The layers of a model in fla's layout: num_hidden_layers of them, each as `name_layer` names its
// parts, with the mixer that layer_types, layer_config and attn say.
void AddFlaLayers(ConfigReader& config, const std::function<LayerSpec(size_t)>& name_layer,
                  ModelSpec& spec);

// rwkv_format.cc: fla's rwkv6 and rwkv7.
ModelSpec ParseRwkv6Spec(ConfigReader& config);
ModelSpec ParseRwkv7Spec(ConfigReader& config);

// fla's width of a gated MLP: intermediate_size, or two thirds of hidden_ratio · hidden, rounded up
// to a multiple of 256.
size_t ParseFlaIntermediate(ConfigReader& config, size_t hidden);

// mamba_format.cc: mamba, falcon_mamba and mamba2 as transformers, fla (mamba2) and the converted
// state-spaces files write them; log_linear_mamba2 (fla) and hattention (Guo et al.).
ModelSpec ParseLogLinearMamba2Spec(ConfigReader& config);
ModelSpec ParseMambaSpec(ConfigReader& config);
ModelSpec ParseFalconMambaSpec(ConfigReader& config);
ModelSpec ParseMamba2Spec(ConfigReader& config);

// h3_format.cc: h3 as model_loader/convert_h3.py writes it.
ModelSpec ParseH3Spec(ConfigReader& config);

// hf_decoder.cc: what transformers' decoders have in common (Llama and those written after it): the
// names model.embed_tokens, model.layers.{i}.{input_layernorm, self_attn, post_attention_layernorm,
// mlp}, model.norm, lm_head, and how config.json spells sizes, attention and the kinds of layers.
// Each format's own file says what differs.

// Everything outside of the layers. Refuses what no decoder here computes: other activations,
// quantised weights, soft-capped logits, ...
ModelSpec ParseHfDecoder(ConfigReader& config, double default_norm_eps = 1e-6);

// text_config where there is one, with those of the outer keys that hold for it, else the config.
// transformers ties the output map by the outer config.
nlohmann::json TextConfig(ConfigReader& config);

// Refuses the keys of features that no format here computes, by name.
void RefuseHfUnserved(ConfigReader& config);

// rms_norm_eps, for the norms inside of mixers.
float HfNormEps(ConfigReader& config, double otherwise = 1e-6);

// The activation of an MLP by transformers' name.
Activation ParseActivation(ConfigReader& config, std::string_view key, std::string_view otherwise);

// The choice of experts that DeepSeek-V3 has: σ, groups (n_group, topk_group), norm_topk_prob,
// routed_scaling_factor. `experts_key` says how many experts there are.
ExpertChoice ParseSigmoidChoice(ConfigReader& config, std::string_view experts_key, size_t experts,
                                size_t experts_per_token);

// num_experts_per_tok, at most `experts`; where it is missing `otherwise`, if there are that many.
size_t HfExpertsPerToken(ConfigReader& config, size_t experts, size_t otherwise);

// The kind of each layer by `layer_types`, or nothing where the config has no such list. `known`
// are the names that this architecture has.
std::vector<std::string> HfLayerTypes(ConfigReader& config, std::string_view key,
                                      std::initializer_list<std::string_view> known);

// Layer `layer`, or that whose names begin with `prefix`, without mixer and feed-forward: its two
// norms of this kind.
LayerSpec HfLayer(size_t layer, NormSpec::Kind norm);
LayerSpec HfLayer(const std::string& prefix, NormSpec::Kind norm);

// Makes `layer` one of softmax attention at self_attn.
void SetHfAttention(size_t index, const SoftmaxAttentionConfig& attention, LayerSpec& layer);
void SetHfAttention(const std::string& prefix, const SoftmaxAttentionConfig& attention,
                    LayerSpec& layer);

struct HfAttentionDefaults {
  size_t head_dim = 0;         // 0: the heads share the hidden size
  bool reads_head_dim = true;  // else they always do
  // What partial_rotary_factor is where it is absent; none: all of a head is rotated, without
  // regard to the key, as in transformers.
  std::optional<double> rotated_part = std::nullopt;
  bool reads_outer_part = true;  // RopeDefaults'
  size_t kv_heads = 0;           // 0: as many as heads; also what a null means
  double norm_eps = 1e-6;
  bool rotates = true;
  double theta = 10000.0;
};

// num_attention_heads, num_key_value_heads, head_dim, attention_bias, rms_norm_eps and the rotary
// positions.
SoftmaxAttentionConfig ParseHfAttention(ConfigReader& config, size_t hidden,
                                        const HfAttentionDefaults& defaults = {});

// "model.layers.<layer>.<rest>"
std::string HfName(size_t layer, std::string_view rest);

// llama_format.cc: llama, mistral, qwen2 and qwen3 as transformers writes them.
ModelSpec ParseLlamaSpec(ConfigReader& config);
ModelSpec ParseMistralSpec(ConfigReader& config);
ModelSpec ParseQwen2Spec(ConfigReader& config);
ModelSpec ParseQwen3Spec(ConfigReader& config);

// qwen3_next_format.cc: qwen3_next as transformers writes it, and what Qwen3.5 has of it.
ModelSpec ParseQwen3NextSpec(ConfigReader& config);

// lfm2_format.cc: lfm2 and lfm2_moe as transformers and Liquid AI write them.
ModelSpec ParseLfm2Spec(ConfigReader& config);
ModelSpec ParseLfm2MoeSpec(ConfigReader& config);

// kimi_format.cc: kimi_linear as transformers and Moonshot write it.
ModelSpec ParseKimiLinearSpec(ConfigReader& config);

// linear_attn_config, in which Kimi Linear and GLM-5.3-Flash are published with KDA's sizes; an
// empty object where there is none.
nlohmann::json PublishedLinearAttention(ConfigReader& config);

// A size by its name in `published`, else by transformers' name beside it.
size_t LinearAttentionSize(ConfigReader& config, const nlohmann::json& published, const char* key,
                           const char* other, size_t otherwise, size_t least, size_t most);

// glm5_format.cc: glm5_next and its text model as transformers and Z.ai write them.
ModelSpec ParseGlm5Spec(ConfigReader& config);

// recurrent_gemma_format.cc: recurrent_gemma as transformers writes it.
ModelSpec ParseRecurrentGemmaSpec(ConfigReader& config);

struct QwenHybridDefaults {
  DeltaRuleTensors tensors;
  size_t kv_heads;             // what num_key_value_heads is where it is absent
  double rotated_part = 0.25;  // what partial_rotary_factor is
  bool indexed = false;        // attention may also be called "indexed_attention"
};

// Everything but the feed-forwards of a Qwen hybrid and of the one layer of its predictor.
ModelSpec ParseQwenHybrid(ConfigReader& config, const QwenHybridDefaults& defaults);

// The defaults of a Qwen's num_experts and num_experts_per_tok.
struct QwenExpertDefaults {
  size_t experts = 512;
  size_t experts_per_token = 10;
};

// The experts of the layer whose names begin with `prefix`, and the shared one behind its gate
// (mlp).
MixtureOfExpertsSpec ParseQwenExperts(ConfigReader& config, const std::string& prefix,
                                      const QwenExpertDefaults& defaults);

// Where the names of layer `layer` of a predictor begin.
std::string PredictorPrefix(size_t layer);

// The mixer of a predictor's layer, whose place 0 holds nothing (PredictorSpec). False if it is one
// that cannot leave a place out.
bool SetPredictorMixer(LayerSpec& layer);

// qwen3_5_format.cc: qwen3_5 and qwen3_5_moe, as published and as their text models alone.
ModelSpec ParseQwen35Spec(ConfigReader& config);

// qwen4_exp_format.cc: qwen4_exp and its text model as transformers writes them.
ModelSpec ParseQwen4ExpSpec(ConfigReader& config);

// hf_mamba2.cc: Mamba-2 as transformers' hybrids spell it (mamba_n_heads, ...), but for the norm's
// eps. `inner` is the width of all heads, called `inner_name` in errors.
Mamba2Config ParseHfMamba2(ConfigReader& config, size_t inner, std::string_view inner_name);

// mamba_expand · hidden.
size_t HfMambaInner(ConfigReader& config, size_t hidden);

// Makes `layer` one of Mamba-2 at mamba.
void SetHfMamba2(size_t index, const Mamba2Config& mamba, LayerSpec& layer);

// The formats of transformers' hybrids, one file each.
ModelSpec ParseBambaSpec(ConfigReader& config);
ModelSpec ParseFalconH1Spec(ConfigReader& config);
ModelSpec ParseJambaSpec(ConfigReader& config);
ModelSpec ParseMiniMaxSpec(ConfigReader& config);
ModelSpec ParseNemotronHSpec(ConfigReader& config);
ModelSpec ParseOlmoHybridSpec(ConfigReader& config);
ModelSpec ParseZamba2Spec(ConfigReader& config);

// granite_format.cc: granitemoehybrid (Granite 4 H) as transformers writes it.
ModelSpec ParseGraniteSpec(ConfigReader& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FORMATS_H_
