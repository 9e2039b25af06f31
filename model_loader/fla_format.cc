// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of flash-linear-attention's models (docs/mixers.md#names-and-blocks), which our hla
// uses too: model.embeddings, model.layers.{i}.{attn_norm, attn, mlp_norm, mlp}, model.norm,
// lm_head. Beyond fla, `layer_types` names the mixer of each layer and `layer_config`, a list of
// objects, holds keys that go over the top level's for that layer; every mixer's tensors are below
// attn. fla's own hybrids say in `attn` which layers are softmax attention.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr const char* kSoftmax = "softmax_attention";

// Keys that belong to the model as a whole, so that one layer cannot have its own.
constexpr const char* kModelKeys[] = {
    "model_type",   "vocab_size",  "hidden_size",  "num_hidden_layers",  "intermediate_size",
    "hidden_ratio", "layer_types", "layer_config", "tie_word_embeddings"};

// fla's options that change the model and that we do not compute.
void RefuseUnserved(ConfigReader& config) {
  config.Require(!config.Has("attnres_block_size"), "attnres_block_size",
                 "attention residuals are not served");
  config.Choice<bool>("hidden_act", "swish", {{"swish", true}, {"silu", true}});
}

// Keys of which a list has an entry for each layer.
constexpr const char* kListKeys[] = {"value_dim"};

// `base` with the layer's entry of the keys that are lists.
json EntriesOf(ConfigReader& config, json base, size_t layers, size_t layer) {
  for (const char* key : kListKeys) {
    if (!base.contains(key) || !base[key].is_array()) continue;
    const json* list = LayerList(config, key, layers);
    json entry = list == nullptr ? json() : (*list)[layer];
    base[key] = std::move(entry);
  }
  return base;
}

// `base` with the layer's own keys over it.
json LayerConfig(ConfigReader& config, const json& base, const json& own, size_t layer) {
  json merged = base;
  const std::string where = absl::StrCat("layer_config: entry ", layer);
  if (!own.is_object()) {
    config.Fail(where + " must be an object");
    return merged;
  }
  for (const char* key : kModelKeys) {
    if (!own.contains(key)) continue;
    config.Fail(absl::StrCat(where, " sets ", key,
                             ", which is one for all layers: move it to the top level"));
  }
  merged.update(own);
  return merged;
}

// Which layers `attn` makes softmax attention; none without it. A head count that does not fit is
// reported here, as attn's.
std::vector<bool> AttentionLayers(ConfigReader& config, size_t layers, size_t hidden) {
  std::vector<bool> chosen(layers, false);
  const json* attn = config.Find("attn");
  if (attn == nullptr) return chosen;
  config.Require(attn->is_object(), "attn",
                 "it must be an object with layers and num_heads, or null");
  config.Require(!config.Has("layer_types"), "attn",
                 "layer_types says which mixer each layer has; keep one of them");
  ConfigReader reader(*attn);
  reader.Require(reader.Has("layers"), "layers", "attn needs a list of layers");
  for (const size_t layer : reader.Layers("layers", layers)) chosen[layer] = true;
  reader.Require(reader.Has("num_heads"), "num_heads", "attn needs its own");
  reader.Require(hidden % reader.Size("num_heads") == 0, "num_heads",
                 absl::StrCat("in attn, it must divide hidden_size ", hidden));
  config.Fail(reader.status());
  return chosen;
}

LayerSpec NameLayer(size_t layer, size_t intermediate) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_prefix = prefix + "attn.";
  spec.mixer_norm.weight = prefix + "attn_norm.weight";
  spec.feed_forward_norm.weight = prefix + "mlp_norm.weight";
  spec.feed_forward = NameGatedMlp(prefix + "mlp.", intermediate);
  return spec;
}

void SetMixer(ConfigReader& config, const std::string& type, const json& keys, size_t hidden,
              LayerSpec& layer) {
  layer.mixer_type = type;
  absl::StatusOr<MixerConfig> mixer = ParseMixer(type, keys, hidden);
  if (mixer.ok()) {
    layer.mixer = *std::move(mixer);
    return;
  }
  config.Fail(absl::Status(
      mixer.status().code(),
      absl::StrCat("mixer ", type, " at ", layer.mixer_prefix, ": ", mixer.status().message())));
}

// fla calls a model of softmax attention alone a transformer.
std::vector<std::string> MixerTypes(ConfigReader& config, size_t layers, const std::string& model) {
  const std::vector<std::string> named = LayerListNames(config, "layer_types", layers);
  for (size_t i = 0; i < named.size(); ++i) {
    if (FindMixerParser(named[i]) != nullptr) continue;
    const absl::Status unknown = ParseMixer(named[i], json(), 1).status();
    config.Fail(absl::StrCat("layer_types: entry ", i, ": ", unknown.message()));
  }
  if (!named.empty()) return named;
  return std::vector<std::string>(layers, model == "transformer" ? kSoftmax : model);
}

// RWKV-7: of the layers that are, the first leaves its values to all others.
void MarkFirstRwkv7(ConfigReader& config, ModelSpec& spec) {
  const Rwkv7Config* first = nullptr;
  for (LayerSpec& layer : spec.layers) {
    auto* rwkv7 = std::get_if<Rwkv7Config>(&layer.mixer);
    if (rwkv7 == nullptr) continue;
    rwkv7->first = first == nullptr;
    if (first == nullptr) first = rwkv7;
    const size_t columns = first->shape.heads * first->shape.value_dim;
    config.Require(rwkv7->shape.heads * rwkv7->shape.value_dim == columns, "value_dim",
                   absl::StrCat("all layers mix in the values of the first, so it must be ",
                                columns, " in all of them"));
  }
}

}  // namespace

void AddFlaLayers(ConfigReader& config, const std::function<LayerSpec(size_t)>& name_layer,
                  ModelSpec& spec) {
  const size_t layers = ParseLayerCount(config);
  const std::vector<std::string> types = MixerTypes(config, layers, spec.architecture);
  const json* own = LayerList(config, "layer_config", layers);
  const std::vector<bool> softmax = AttentionLayers(config, layers, spec.hidden);
  json base = config.object();
  for (const char* key : {"layer_types", "layer_config", "attn"}) base.erase(key);
  for (size_t i = 0; i < layers && config.ok(); ++i) {
    LayerSpec& layer = spec.layers.emplace_back(name_layer(i));
    const json keys = EntriesOf(config, base, layers, i);
    if (softmax[i]) {
      SetMixer(config, kSoftmax, *config.Find("attn"), spec.hidden, layer);
    } else if (own == nullptr || (*own)[i].is_null()) {
      SetMixer(config, types[i], keys, spec.hidden, layer);
    } else {
      SetMixer(config, types[i], LayerConfig(config, keys, (*own)[i], i), spec.hidden, layer);
    }
  }
  MarkFirstRwkv7(config, spec);
}

size_t ParseLayerCount(ConfigReader& config) {
  return config.Size("num_hidden_layers", std::nullopt, 1, kMostLayers);
}

size_t ParseFlaIntermediate(ConfigReader& config, size_t hidden) {
  if (config.Has("intermediate_size")) return config.Size("intermediate_size");
  const double ratio = config.Number("hidden_ratio", 4.0);
  if (!(ratio > 0 && ratio <= 64)) {
    config.Fail("hidden_ratio", "it must be greater than 0 and at most 64");
    return 1;
  }
  const auto width = static_cast<size_t>(std::floor(static_cast<double>(hidden) * ratio * 2 / 3));
  return (width + 255) / 256 * 256;
}

ModelSpec ParseFlaSpec(ConfigReader& config) {
  RefuseUnserved(config);
  ModelSpec spec = ParseCommonFields(config, 1e-6);
  NameEnds(config, "model.embeddings.weight", {.weight = "model.norm.weight"}, false, spec);
  const size_t intermediate = ParseFlaIntermediate(config, spec.hidden);
  AddFlaLayers(
      config, [=](size_t layer) { return NameLayer(layer, intermediate); }, spec);
  return spec;
}

}  // namespace rivulet
