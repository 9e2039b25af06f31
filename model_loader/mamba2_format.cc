// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of Mamba-2 in transformers and fla (mixers.md 0.4, 6): backbone.embeddings,
// backbone.layers.{i}.{norm, mixer}, backbone.norm_f, lm_head. A block is the mixer alone. The
// state-spaces files name the embeddings backbone.embedding; model_loader/convert_mamba_ssm.py
// turns them into this format. residual_in_fp32 makes no difference here: residuals are fp32.
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/formats.h"

namespace rivulet {

absl::StatusOr<ModelSpec> ParseMamba2Spec(const nlohmann::json& config) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseCommonFields(config, 1e-5));
  RIVULET_ASSIGN_OR_RETURN(const bool tied, BoolField(config, "tie_word_embeddings", false));
  RIVULET_ASSIGN_OR_RETURN(const size_t layers,
                           SizeField(config, "num_hidden_layers", std::nullopt, 1, kMostLayers));
  spec.embeddings = "backbone.embeddings.weight";
  spec.embeddings_older_name = "backbone.embedding.weight";
  spec.final_norm.weight = "backbone.norm_f.weight";
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  for (size_t i = 0; i < layers; ++i) {
    const std::string prefix = absl::StrCat("backbone.layers.", i, ".");
    LayerSpec layer;
    layer.mixer_type = "mamba2";
    layer.mixer_config = config;
    layer.mixer_prefix = prefix + "mixer.";
    layer.mixer_norm.weight = prefix + "norm.weight";
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

}  // namespace rivulet
