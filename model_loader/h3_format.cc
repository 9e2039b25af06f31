// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// H3's public models (docs/mixers.md#h3) as model_loader/convert_h3.py writes them: the tensors'
// names of their model.pt, and a config.json in keys of ours, since they have none. Blocks of
// LayerNorm, mixer, LayerNorm and a two-layer MLP; those in attn_layer_idx have softmax attention
// in the place of H3. The output map is the embeddings.
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"

namespace rivulet {
namespace {

using nlohmann::json;

// attn_layer_idx: a list of layers, or nothing.
absl::StatusOr<std::set<size_t>> ParseAttentionLayers(const json& config, size_t layers) {
  std::set<size_t> chosen;
  RIVULET_ASSIGN_OR_RETURN(const std::vector<double> list,
                           NumberListField(config, "attn_layer_idx"));
  for (const double entry : list) {
    if (!(entry >= 0 && entry < static_cast<double>(layers)) ||
        entry != static_cast<double>(static_cast<size_t>(entry))) {
      return FieldError(config, "attn_layer_idx",
                        absl::StrCat("each entry must be a layer from 0 to ", layers - 1));
    }
    chosen.insert(static_cast<size_t>(entry));
  }
  return chosen;
}

// What kernels/mixers/softmax_attention reads; rotary_dim 0 or absent: no positions.
absl::StatusOr<json> AttentionConfig(const json& config, size_t hidden) {
  RIVULET_ASSIGN_OR_RETURN(const size_t heads,
                           SizeField(config, "num_attention_heads", std::nullopt));
  if (hidden % heads != 0) {
    return FieldError(config, "num_attention_heads",
                      absl::StrCat("must divide hidden_size ", hidden, " without remainder"));
  }
  const size_t width = hidden / heads;
  RIVULET_ASSIGN_OR_RETURN(const size_t rotary, SizeField(config, "rotary_dim", 0, 0, width));
  if (rotary % 2 != 0) return FieldError(config, "rotary_dim", "it must be even, or 0 for none");
  json attention = {{"num_heads", heads}, {"qkv_bias", true}, {"output_bias", true}};
  attention["rope_theta"] = rotary == 0 ? json(nullptr) : json(10000.0);
  if (rotary != 0) {
    attention["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(width);
  }
  return attention;
}

NormSpec NameNorm(const std::string& prefix) {
  return {prefix + ".weight", prefix + ".bias", NormSpec::Kind::kLayer};
}

LayerSpec NameLayer(size_t layer, size_t intermediate) {
  const std::string prefix = absl::StrCat("backbone.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_prefix = prefix + "mixer.";
  spec.mixer_norm = NameNorm(prefix + "norm1");
  spec.feed_forward_norm = NameNorm(prefix + "norm2");
  spec.feed_forward = TwoLayerMlpSpec{intermediate, prefix + "mlp.fc1", prefix + "mlp.fc2"};
  return spec;
}

absl::Status AddLayers(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const size_t layers,
                           SizeField(config, "num_hidden_layers", std::nullopt, 1, kMostLayers));
  RIVULET_RETURN_IF_ERROR(RefuseMixture(config, layers, "h3"));
  RIVULET_ASSIGN_OR_RETURN(const size_t intermediate,
                           SizeField(config, "intermediate_size", 4 * spec.hidden));
  RIVULET_ASSIGN_OR_RETURN(const std::set<size_t> chosen, ParseAttentionLayers(config, layers));
  json attention;
  if (!chosen.empty()) {
    RIVULET_ASSIGN_OR_RETURN(attention, AttentionConfig(config, spec.hidden));
  }
  for (size_t i = 0; i < layers; ++i) {
    const bool attends = chosen.count(i) > 0;
    LayerSpec layer = NameLayer(i, intermediate);
    layer.mixer_type = attends ? "softmax_attention" : "h3";
    layer.mixer_config = attends ? attention : config;
    spec.layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseH3Spec(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseCommonFields(config, 1e-5));
  spec.embeddings = "backbone.embeddings.word_embeddings.weight";
  spec.lm_head = spec.embeddings;
  spec.final_norm = NameNorm("backbone.ln_f");
  RIVULET_RETURN_IF_ERROR(AddLayers(config, spec));
  return spec;
}

}  // namespace rivulet
