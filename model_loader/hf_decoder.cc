// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/hf_decoder.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"

namespace rivulet {
namespace {

using nlohmann::json;

// Keys that change what a decoder computes. Absent, null, false and 0 are as if they were not
// there.
struct Refused {
  const char* key;
  const char* remedy;
};
constexpr Refused kRefused[] = {
    {"quantization_config", "quantised weights are not served; use the checkpoint in bf16"},
    {"attn_logit_softcapping", "soft-capped attention is not served; use a model without it"},
    {"final_logit_softcapping", "soft-capped logits are not served; use a model without it"},
    {"attention_sinks", "attention sinks are not served; use a model without them"},
    {"sinks", "attention sinks are not served; use a model without them"},
    {"attention_chunk_size", "chunked attention is not served; use a model without it"},
    {"clip_qkv", "clipped queries and keys are not served; use a model without it"},
    {"no_rope_layers", "positions that differ by layer are not served; use a model without it"},
    {"dual_chunk_attention_config", "dual chunk attention is not served; remove the key"},
};

bool IsSet(const json& config, const char* key) {
  if (!HasField(config, key)) return false;
  const json& value = config[key];
  return value != false && value != 0 && value != json::array();
}

absl::Status RefuseUnserved(const json& config) {
  for (const Refused& refused : kRefused) {
    if (IsSet(config, refused.key)) return FieldError(config, refused.key, refused.remedy);
  }
  return ChoiceField(config, "hidden_act", "silu", {"silu", "swish"}).status();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseHfDecoder(const json& config) {
  RIVULET_RETURN_IF_ERROR(RefuseUnserved(config));
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseCommonFields(config, 1e-6));
  RIVULET_ASSIGN_OR_RETURN(const bool tied, BoolField(config, "tie_word_embeddings", false));
  spec.embeddings = "model.embed_tokens.weight";
  spec.final_norm.weight = "model.norm.weight";
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  return spec;
}

absl::StatusOr<double> HfNormEps(const json& config) {
  return NumberField(config, "rms_norm_eps", 1e-6);
}

absl::StatusOr<size_t> HfLayers(const json& config) {
  return SizeField(config, "num_hidden_layers", std::nullopt, 1, kMostLayers);
}

absl::StatusOr<size_t> HfExpertsPerToken(const json& config, size_t experts, size_t otherwise) {
  const auto allowed = otherwise <= experts ? std::optional<size_t>(otherwise) : std::nullopt;
  return SizeField(config, "num_experts_per_tok", allowed, 1, experts);
}

absl::StatusOr<std::vector<std::string>> HfLayerTypes(
    const json& config, std::string_view key, std::initializer_list<std::string_view> known) {
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  RIVULET_ASSIGN_OR_RETURN(const json* list, LayerList(config, key, layers));
  std::vector<std::string> types;
  if (list == nullptr) return types;
  for (size_t i = 0; i < layers; ++i) {
    RIVULET_ASSIGN_OR_RETURN(types.emplace_back(), LayerListName(*list, key, i));
    if (std::find(known.begin(), known.end(), types[i]) != known.end()) continue;
    std::vector<std::string> names(known.begin(), known.end());
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(key), ": entry ", i, " is \"", types[i],
                                                   "\": layers of this architecture are ",
                                                   absl::StrJoin(names, ", ")));
  }
  return types;
}

LayerSpec HfLayer(size_t layer, NormSpec::Kind norm) {
  LayerSpec spec;
  spec.mixer_norm = {HfName(layer, "input_layernorm.weight"), "", norm};
  spec.feed_forward_norm = {HfName(layer, "post_attention_layernorm.weight"), "", norm};
  return spec;
}

void SetHfAttention(size_t index, const json& attention, LayerSpec& layer) {
  layer.mixer_type = "softmax_attention";
  layer.mixer_prefix = HfName(index, "self_attn.");
  layer.mixer_config = attention;
}

absl::StatusOr<json> ParseHfAttention(const json& config, size_t hidden) {
  RIVULET_ASSIGN_OR_RETURN(const size_t heads,
                           SizeField(config, "num_attention_heads", std::nullopt));
  RIVULET_ASSIGN_OR_RETURN(const size_t kv_heads, SizeField(config, "num_key_value_heads", heads));
  if (heads % kv_heads != 0) {
    return FieldError(
        config, "num_key_value_heads",
        absl::StrCat("must divide num_attention_heads ", heads, " without remainder"));
  }
  if (!HasField(config, "head_dim") && hidden % heads != 0) {
    return FieldError(config, "num_attention_heads",
                      absl::StrCat("must divide hidden_size ", hidden,
                                   " without remainder where head_dim is absent"));
  }
  RIVULET_ASSIGN_OR_RETURN(const size_t head_dim, SizeField(config, "head_dim", hidden / heads));
  RIVULET_ASSIGN_OR_RETURN(const bool bias, BoolField(config, "attention_bias", false));
  json attention = {{"num_heads", heads},
                    {"num_kv_heads", kv_heads},
                    {"head_dim", head_dim},
                    {"qkv_bias", bias},
                    {"output_bias", bias}};
  for (const char* key :
       {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"}) {
    if (HasField(config, key)) attention[key] = config[key];
  }
  RIVULET_ASSIGN_OR_RETURN(attention["norm_eps"], HfNormEps(config));
  return attention;
}

GatedMlpSpec HfMlp(size_t layer, size_t intermediate) {
  return {intermediate, HfName(layer, "mlp.gate_proj"), HfName(layer, "mlp.up_proj"),
          HfName(layer, "mlp.down_proj")};
}

std::string HfName(size_t layer, std::string_view rest) {
  return absl::StrCat("model.layers.", layer, ".", ToAbsl(rest));
}

}  // namespace rivulet
