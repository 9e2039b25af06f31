// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layout of Mamba, Falcon Mamba and Mamba-2 in transformers and fla
// (docs/mixers.md#names-and-blocks, #mamba, #mamba-2): backbone.embeddings,
// backbone.layers.{i}.{norm, mixer}, backbone.norm_f, lm_head. A block is the mixer alone. The
// state-spaces files name the embeddings backbone.embedding; model_loader/convert_mamba_ssm.py
// turns them into this format.
//
// Log-linear Mamba-2 (#log-linear-mamba-2) in fla (log_linear_mamba2) and in its authors' own code
// (hattention) has these names, and a gated MLP in every block: {mixer_norm, mixer, mlp_norm, mlp}.
//
// residual_in_fp32 makes no difference here: residuals are fp32.
#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"

namespace rivulet {
namespace {

std::string LayerName(size_t layer, const char* rest) {
  return absl::StrCat("backbone.layers.", layer, ".", rest);
}

// Everything but the norms of the layers, and feed-forward blocks.
ModelSpec ParseBackbone(ConfigReader& config, const char* type, const MixerConfig& mixer,
                        bool default_tied) {
  ModelSpec spec = ParseCommonFields(config, 1e-5);
  const size_t layers = ParseLayerCount(config);
  RefuseMixture(config, layers, type);
  NameEnds(config, "backbone.embeddings.weight", {.weight = "backbone.norm_f.weight"}, default_tied,
           spec);
  for (size_t i = 0; i < layers; ++i) {
    LayerSpec& layer = spec.layers.emplace_back();
    layer.mixer_type = type;
    layer.mixer = mixer;
    layer.mixer_prefix = LayerName(i, "mixer.");
  }
  return spec;
}

// Blocks of the mixer alone.
ModelSpec ParseMixersOnly(ConfigReader& config, const char* type, const MixerConfig& mixer,
                          bool default_tied) {
  ModelSpec spec = ParseBackbone(config, type, mixer, default_tied);
  spec.embeddings_older_name = "backbone.embedding.weight";
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].mixer_norm.weight = LayerName(i, "norm.weight");
  }
  return spec;
}

// transformers writes the scan's width a second time.
ModelSpec ParseMambaOf(ConfigReader& config, const MambaConfig& mixer) {
  if (config.Has("intermediate_size")) {
    config.Require(config.Size("intermediate_size") == mixer.inner, "intermediate_size",
                   absl::StrCat("it must be expand times hidden_size, ", mixer.inner));
  }
  return ParseMixersOnly(config, "mamba", mixer, true);
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
  return ParseMixersOnly(config, "mamba2", ParseMamba2(config, config.Size("hidden_size")), false);
}

ModelSpec ParseLogLinearMamba2Spec(ConfigReader& config) {
  const size_t hidden = config.Size("hidden_size");
  ModelSpec spec =
      ParseBackbone(config, "log_linear_mamba2", ParseLogLinearMamba2(config, hidden), false);
  const size_t intermediate = ParseFlaIntermediate(config, hidden);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    layer.mixer_norm.weight = LayerName(i, "mixer_norm.weight");
    layer.feed_forward_norm.weight = LayerName(i, "mlp_norm.weight");
    layer.feed_forward = NameGatedMlp(LayerName(i, "mlp."), intermediate);
  }
  return spec;
}

}  // namespace rivulet
