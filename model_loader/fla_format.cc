// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of flash-linear-attention's models (mixers.md 0.4), which our hla uses too (11.6):
// model.embeddings, model.layers.{i}.{attn_norm, attn, mlp_norm, mlp}, model.norm, lm_head. Beyond
// fla, `layer_types` names the mixer of each layer and `layer_config`, a list of objects, holds
// keys that go over the top level's for that layer; every mixer's tensors are below attn.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/mixer.h"
#include "model_loader/formats.h"

namespace rivulet {
namespace {

using nlohmann::json;

// Keys that belong to the model as a whole, so that one layer cannot have its own.
constexpr const char* kModelKeys[] = {
    "model_type",   "vocab_size",  "hidden_size",  "num_hidden_layers",  "intermediate_size",
    "hidden_ratio", "layer_types", "layer_config", "tie_word_embeddings"};

// fla's options that change the model and that we do not compute.
absl::Status RefuseUnserved(const json& config) {
  if (HasField(config, "attn")) {
    return FieldError(config, "attn",
                      "layers of softmax attention are not served; use a model "
                      "with linear-time mixers only");
  }
  if (HasField(config, "attnres_block_size")) {
    return FieldError(config, "attnres_block_size", "attention residuals are not served");
  }
  return ChoiceField(config, "hidden_act", "swish", {"swish", "silu"}).status();
}

// fla's rule: two thirds of hidden_ratio · hidden, rounded up to a multiple of 256.
absl::StatusOr<size_t> ParseIntermediate(const json& config, size_t hidden) {
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

// Null where the config has no such list.
absl::StatusOr<const json*> LayerList(const json& config, const char* key, size_t layers) {
  if (!HasField(config, key)) return nullptr;
  const json& list = config[key];
  if (!list.is_array()) return FieldError(config, key, "it must be a list, one entry a layer");
  if (list.size() == layers) return &list;
  return absl::InvalidArgumentError(absl::StrCat(key, " has ", list.size(), " entries, but ",
                                                 "num_hidden_layers is ", layers,
                                                 ": give one entry a layer"));
}

absl::StatusOr<std::string> LayerType(const json* types, size_t layer, const std::string& type) {
  if (types == nullptr) return type;
  const json& entry = (*types)[layer];
  if (!entry.is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer_types: entry ", layer, " must be a string"));
  }
  auto name = entry.get<std::string>();
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
  RIVULET_ASSIGN_OR_RETURN(const size_t intermediate, ParseIntermediate(config, spec.hidden));
  RIVULET_ASSIGN_OR_RETURN(const json* types, LayerList(config, "layer_types", layers));
  RIVULET_ASSIGN_OR_RETURN(const json* configs, LayerList(config, "layer_config", layers));
  json base = config;
  base.erase("layer_types");
  base.erase("layer_config");
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec layer = NameLayer(i, intermediate);
    RIVULET_ASSIGN_OR_RETURN(layer.mixer_type, LayerType(types, i, spec.architecture));
    RIVULET_ASSIGN_OR_RETURN(layer.mixer_config, LayerConfig(base, configs, i));
    spec.layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

}  // namespace

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
