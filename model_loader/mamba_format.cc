// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of Mamba, Falcon Mamba and Mamba-2 in transformers and fla
// (docs/mixers.md#names-and-blocks, #mamba, #mamba-2): backbone.embeddings,
// backbone.layers.{i}.{norm, mixer}, backbone.norm_f, lm_head. A block is the mixer alone. The
// state-spaces files name the embeddings backbone.embedding; model_loader/convert_mamba_ssm.py
// turns them into this format. residual_in_fp32 makes no difference here: residuals are fp32.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/layer_list.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

ModelSpec ParseBackbone(ConfigReader& config, const char* type, const MixerConfig& mixer,
                        bool default_tied) {
  ModelSpec spec = ParseCommonFields(config, 1e-5);
  const size_t layers = ParseLayerCount(config);
  RefuseMixture(config, layers, type);
  spec.embeddings = "backbone.embeddings.weight";
  spec.embeddings_older_name = "backbone.embedding.weight";
  spec.final_norm.weight = "backbone.norm_f.weight";
  const bool tied = config.Bool("tie_word_embeddings", default_tied);
  spec.lm_head = tied ? spec.embeddings : "lm_head.weight";
  for (size_t i = 0; i < layers; ++i) {
    const std::string prefix = absl::StrCat("backbone.layers.", i, ".");
    LayerSpec& layer = spec.layers.emplace_back();
    layer.mixer_type = type;
    layer.mixer = mixer;
    layer.mixer_prefix = prefix + "mixer.";
    layer.mixer_norm.weight = prefix + "norm.weight";
  }
  return spec;
}

// transformers writes the scan's width a second time.
void CheckIntermediate(ConfigReader& config, size_t inner) {
  if (!config.Has("intermediate_size")) return;
  config.Require(config.Size("intermediate_size") == inner, "intermediate_size",
                 absl::StrCat("it must be expand times hidden_size, ", inner));
}

ModelSpec ParseMambaOf(ConfigReader& config, MambaConfig mixer) {
  CheckIntermediate(config, mixer.inner);
  return ParseBackbone(config, "mamba", mixer, true);
}

}  // namespace

ModelSpec ParseMambaSpec(ConfigReader& config) {
  return ParseMambaOf(config, ParseMamba(config, config.Size("hidden_size")));
}

ModelSpec ParseFalconMambaSpec(ConfigReader& config) {
  MambaConfig mixer = ParseMamba(config, config.Size("hidden_size"));
  mixer.use_scan_norms = true;
  mixer.scan_norm_eps = config.Eps("mixer_rms_eps", 1e-6);
  return ParseMambaOf(config, mixer);
}

ModelSpec ParseMamba2Spec(ConfigReader& config) {
  return ParseBackbone(config, "mamba2", ParseMamba2(config, config.Size("hidden_size")), false);
}

}  // namespace rivulet
