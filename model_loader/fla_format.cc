// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of flash-linear-attention's models (docs/mixers.md#names-and-blocks), which our hla
// uses too (11.6): model.embeddings, model.layers.{i}.{attn_norm, attn, mlp_norm, mlp}, model.norm,
// lm_head. Beyond fla, `layer_types` names the mixer of each layer and `layer_config`, a list of
// objects, holds keys that go over the top level's for that layer; every mixer's tensors are below
// attn. fla's own hybrids say in `attn` which layers are softmax attention.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/mixer.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"

namespace rivulet {
namespace {

using nlohmann::json;

// Keys that belong to the model as a whole, so that one layer cannot have its own.
constexpr const char* kModelKeys[] = {
    "model_type",   "vocab_size",  "hidden_size",  "num_hidden_layers",  "intermediate_size",
    "hidden_ratio", "layer_types", "layer_config", "tie_word_embeddings"};

// fla's options that change the model and that we do not compute.
absl::Status RefuseUnserved(const json& config) {
  if (HasField(config, "attnres_block_size")) {
    return FieldError(config, "attnres_block_size", "attention residuals are not served");
  }
  return ChoiceField(config, "hidden_act", "swish", {"swish", "silu"}).status();
}

absl::StatusOr<std::string> LayerType(const json* types, size_t layer, const std::string& type) {
  if (types == nullptr) return type;
  RIVULET_ASSIGN_OR_RETURN(std::string name, LayerListName(*types, "layer_types", layer));
  const absl::Status known = FindMixer(name).status();
  if (known.ok()) return name;
  return absl::InvalidArgumentError(
      absl::StrCat("layer_types: entry ", layer, ": ", known.message()));
}

// `base` with the layer's own keys over it.
absl::StatusOr<json> LayerConfig(const json& base, const json* configs, size_t layer) {
  json merged = base;
  if (configs == nullptr || (*configs)[layer].is_null()) return merged;
  const json& own = (*configs)[layer];
  if (!own.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer_config: entry ", layer, " must be an object"));
  }
  for (const char* key : kModelKeys) {
    if (!own.contains(key)) continue;
    return absl::InvalidArgumentError(absl::StrCat("layer_config: entry ", layer, " sets ", key,
                                                   ", which is one for all layers: move it to the "
                                                   "top level"));
  }
  merged.update(own);
  return merged;
}

constexpr const char* kSoftmax = "softmax_attention";

// fla calls a model of softmax attention alone a transformer.
std::string MixerOf(const std::string& model_type) {
  return model_type == "transformer" ? kSoftmax : model_type;
}

absl::Status CheckAttn(const json& config) {
  if (!config["attn"].is_object()) {
    return FieldError(config, "attn", "it must be an object with layers and num_heads, or null");
  }
  if (!HasField(config, "layer_types")) return absl::OkStatus();
  return FieldError(config, "attn",
                    "layer_types says which mixer each layer has; keep one of them");
}

// Which layers `attn` makes softmax attention; none without it.
absl::StatusOr<std::vector<bool>> AttentionLayers(const json& config, size_t layers) {
  std::vector<bool> chosen(layers, false);
  if (!HasField(config, "attn")) return chosen;
  RIVULET_RETURN_IF_ERROR(CheckAttn(config));
  const json& attn = config["attn"];
  if (!HasField(attn, "layers")) return FieldError(attn, "layers", "attn needs a list of layers");
  RIVULET_ASSIGN_OR_RETURN(const std::vector<double> list, NumberListField(attn, "layers"));
  for (const double layer : list) {
    if (!(layer >= 0 && layer < static_cast<double>(layers)) || layer != std::floor(layer)) {
      return FieldError(
          attn, "layers",
          absl::StrCat("in attn, its entries must be layers, from 0 to ", layers - 1));
    }
    chosen[static_cast<size_t>(layer)] = true;
  }
  return chosen;
}

// The mixer's keys are fla's. Checked here: a head count that does not fit belongs to `attn`.
absl::StatusOr<json> AttentionConfig(const json& attn, size_t hidden) {
  if (!HasField(attn, "num_heads")) return FieldError(attn, "num_heads", "attn needs its own");
  RIVULET_ASSIGN_OR_RETURN(const size_t heads, SizeField(attn, "num_heads", std::nullopt));
  if (hidden % heads != 0) {
    return FieldError(attn, "num_heads",
                      absl::StrCat("in attn, it must divide hidden_size ", hidden));
  }
  json mixer = attn;
  mixer.erase("layers");
  return mixer;
}

LayerSpec NameLayer(size_t layer, size_t intermediate) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_prefix = prefix + "attn.";
  spec.mixer_norm.weight = prefix + "attn_norm.weight";
  spec.feed_forward_norm.weight = prefix + "mlp_norm.weight";
  spec.feed_forward = GatedMlpSpec{intermediate, prefix + "mlp.gate_proj", prefix + "mlp.up_proj",
                                   prefix + "mlp.down_proj"};
  return spec;
}

absl::Status AddLayers(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const size_t layers,
                           SizeField(config, "num_hidden_layers", std::nullopt, 1, kMostLayers));
  RIVULET_ASSIGN_OR_RETURN(const size_t intermediate, ParseFlaIntermediate(config, spec.hidden));
  RIVULET_ASSIGN_OR_RETURN(const json* types, LayerList(config, "layer_types", layers));
  RIVULET_ASSIGN_OR_RETURN(const json* configs, LayerList(config, "layer_config", layers));
  RIVULET_ASSIGN_OR_RETURN(const std::vector<bool> softmax, AttentionLayers(config, layers));
  json base = config;
  for (const char* key : {"layer_types", "layer_config", "attn"}) base.erase(key);
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec layer = NameLayer(i, intermediate);
    RIVULET_ASSIGN_OR_RETURN(layer.mixer_type, LayerType(types, i, MixerOf(spec.architecture)));
    RIVULET_ASSIGN_OR_RETURN(layer.mixer_config, LayerConfig(base, configs, i));
    if (softmax[i]) {
      layer.mixer_type = kSoftmax;
      RIVULET_ASSIGN_OR_RETURN(layer.mixer_config, AttentionConfig(config["attn"], spec.hidden));
    }
    spec.layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<size_t> ParseFlaIntermediate(const json& config, size_t hidden) {
  if (HasField(config, "intermediate_size")) {
    return SizeField(config, "intermediate_size", std::nullopt);
  }
  RIVULET_ASSIGN_OR_RETURN(const double ratio, NumberField(config, "hidden_ratio", 4.0));
  if (!(ratio > 0 && ratio <= 64)) {
    return FieldError(config, "hidden_ratio", "it must be greater than 0 and at most 64");
  }
  const auto width = static_cast<size_t>(std::floor(static_cast<double>(hidden) * ratio * 2 / 3));
  return (width + 255) / 256 * 256;
}

absl::StatusOr<ModelSpec> ParseFlaSpec(const json& config) {
  RIVULET_RETURN_IF_ERROR(RefuseUnserved(config));
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseCommonFields(config, 1e-6));
  RIVULET_ASSIGN_OR_RETURN(const bool tied, BoolField(config, "tie_word_embeddings", false));
  spec.embeddings = "model.embeddings.weight";
  spec.final_norm.weight = "model.norm.weight";
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  RIVULET_RETURN_IF_ERROR(AddLayers(config, spec));
  return spec;
}

}  // namespace rivulet
