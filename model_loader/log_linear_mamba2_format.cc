// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of log-linear Mamba-2 in fla (log_linear_mamba2) and in its authors' own code
// (hattention; docs/mixers.md#names-and-blocks, #log-linear-mamba-2): Mamba-2's names, with a gated
// MLP in every block. residual_in_fp32 makes no difference here: residuals are fp32.
#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {

ModelSpec ParseLogLinearMamba2Spec(ConfigReader& config) {
  ModelSpec spec = ParseCommonFields(config, 1e-5);
  const size_t layers = ParseLayerCount(config);
  const size_t intermediate = ParseFlaIntermediate(config, spec.hidden);
  RefuseMixture(config, layers, "log_linear_mamba2");
  spec.embeddings = "backbone.embeddings.weight";
  spec.final_norm.weight = "backbone.norm_f.weight";
  const bool tied = config.Bool("tie_word_embeddings", false);
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  const LogLinearMamba2Config mixer = ParseLogLinearMamba2(config, spec.hidden);
  for (size_t i = 0; i < layers; ++i) {
    const std::string prefix = absl::StrCat("backbone.layers.", i, ".");
    LayerSpec& layer = spec.layers.emplace_back();
    layer.mixer_type = "log_linear_mamba2";
    layer.mixer = mixer;
    layer.mixer_prefix = prefix + "mixer.";
    layer.mixer_norm.weight = prefix + "mixer_norm.weight";
    layer.feed_forward_norm.weight = prefix + "mlp_norm.weight";
    layer.feed_forward = GatedMlpSpec{intermediate, prefix + "mlp.gate_proj",
                                      prefix + "mlp.up_proj", prefix + "mlp.down_proj"};
  }
  return spec;
}

}  // namespace rivulet
