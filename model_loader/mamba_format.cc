// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of Mamba, Falcon Mamba and Mamba-2 in transformers and fla
// (docs/mixers.md#names-and-blocks, #mamba, #mamba-2): backbone.embeddings,
// backbone.layers.{i}.{norm, mixer}, backbone.norm_f, lm_head. A block is the mixer alone. The
// state-spaces files name the embeddings backbone.embedding; model_loader/convert_mamba_ssm.py
// turns them into this format. residual_in_fp32 makes no difference here: residuals are fp32.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"

namespace rivulet {
namespace {

using nlohmann::json;

LayerSpec NameLayer(size_t layer, const char* mixer, const json& config) {
  const std::string prefix = absl::StrCat("backbone.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_type = mixer;
  spec.mixer_config = config;
  spec.mixer_prefix = prefix + "mixer.";
  spec.mixer_norm.weight = prefix + "norm.weight";
  return spec;
}

absl::StatusOr<ModelSpec> ParseBackbone(const json& config, const char* mixer, bool default_tied) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseCommonFields(config, 1e-5));
  RIVULET_ASSIGN_OR_RETURN(const bool tied, BoolField(config, "tie_word_embeddings", default_tied));
  RIVULET_ASSIGN_OR_RETURN(const size_t layers,
                           SizeField(config, "num_hidden_layers", std::nullopt, 1, kMostLayers));
  RIVULET_RETURN_IF_ERROR(RefuseMixture(config, layers, mixer));
  spec.embeddings = "backbone.embeddings.weight";
  spec.embeddings_older_name = "backbone.embedding.weight";
  spec.final_norm.weight = "backbone.norm_f.weight";
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  for (size_t i = 0; i < layers; ++i) spec.layers.push_back(NameLayer(i, mixer, config));
  return spec;
}

// transformers writes the scan's width a second time.
absl::Status CheckIntermediate(const json& config) {
  if (!HasField(config, "intermediate_size")) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const size_t width,
                           SizeField(config, "intermediate_size", std::nullopt));
  RIVULET_ASSIGN_OR_RETURN(const size_t hidden, SizeField(config, "hidden_size", std::nullopt));
  RIVULET_ASSIGN_OR_RETURN(const double expand, NumberField(config, "expand", 2.0));
  const double inner = std::floor(expand * static_cast<double>(hidden));
  if (static_cast<double>(width) == inner) return absl::OkStatus();
  return FieldError(config, "intermediate_size",
                    absl::StrCat("it must be expand times hidden_size, ", inner));
}

}  // namespace

absl::StatusOr<ModelSpec> ParseMambaSpec(const json& config) {
  RIVULET_RETURN_IF_ERROR(CheckIntermediate(config));
  return ParseBackbone(config, "mamba", true);
}

absl::StatusOr<ModelSpec> ParseFalconMambaSpec(const json& config) {
  json with_norms = config;
  if (!HasField(config, "mixer_rms_eps")) with_norms["mixer_rms_eps"] = 1e-6;
  return ParseMambaSpec(with_norms);
}

absl::StatusOr<ModelSpec> ParseMamba2Spec(const json& config) {
  return ParseBackbone(config, "mamba2", false);
}

}  // namespace rivulet
