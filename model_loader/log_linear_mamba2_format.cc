// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of log-linear Mamba-2 in fla (log_linear_mamba2) and in its authors' own code
// (hattention; docs/mixers.md#names-and-blocks, #log-linear-mamba-2): Mamba-2's names, with a gated
// MLP in every block. residual_in_fp32 makes no difference here: residuals are fp32.
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"

namespace rivulet {
namespace {

LayerSpec NameLayer(size_t layer, size_t intermediate, const nlohmann::json& config) {
  const std::string prefix = absl::StrCat("backbone.layers.", layer, ".");
  LayerSpec spec;
  spec.mixer_type = "log_linear_mamba2";
  spec.mixer_config = config;
  spec.mixer_prefix = prefix + "mixer.";
  spec.mixer_norm.weight = prefix + "mixer_norm.weight";
  spec.feed_forward_norm.weight = prefix + "mlp_norm.weight";
  spec.feed_forward = GatedMlpSpec{intermediate, prefix + "mlp.gate_proj", prefix + "mlp.up_proj",
                                   prefix + "mlp.down_proj"};
  return spec;
}

}  // namespace

absl::StatusOr<ModelSpec> ParseLogLinearMamba2Spec(const nlohmann::json& config) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseCommonFields(config, 1e-5));
  RIVULET_ASSIGN_OR_RETURN(const bool tied, BoolField(config, "tie_word_embeddings", false));
  RIVULET_ASSIGN_OR_RETURN(const size_t layers,
                           SizeField(config, "num_hidden_layers", std::nullopt, 1, kMostLayers));
  RIVULET_ASSIGN_OR_RETURN(const size_t intermediate, ParseFlaIntermediate(config, spec.hidden));
  RIVULET_RETURN_IF_ERROR(RefuseMixture(config, layers, "log_linear_mamba2"));
  spec.embeddings = "backbone.embeddings.weight";
  spec.final_norm.weight = "backbone.norm_f.weight";
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  for (size_t i = 0; i < layers; ++i) {
    spec.layers.push_back(NameLayer(i, intermediate, config));
  }
  return spec;
}

}  // namespace rivulet
