// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/layer_loader.h"

#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/status.h"
#include "kernels/mixers/side_by_side.h"

namespace rivulet {
namespace {

// The layer's mixer, with those beside it.
absl::StatusOr<std::unique_ptr<Mixer>> TakeMixers(const LayerSpec& spec,
                                                  const MixerMaker& make_mixer) {
  RIVULET_ASSIGN_OR_RETURN(auto mixer, make_mixer(spec.mixer, spec.mixer_prefix));
  if (spec.beside.empty() && spec.mixer_input == 1 && spec.mixer_output == 1) return mixer;
  std::vector<SideBySide::Branch> branches;
  branches.push_back({std::move(mixer), spec.mixer_input, spec.mixer_output});
  for (const BesideSpec& beside : spec.beside) {
    RIVULET_ASSIGN_OR_RETURN(auto other, make_mixer(beside.mixer, beside.mixer_prefix));
    branches.push_back({std::move(other), beside.input, beside.output});
  }
  return std::make_unique<SideBySide>(std::move(branches));
}

LoadedResidual TakeResidual(const ResidualSpec& spec, const ModelSpec& model,
                            ParameterSource& parameters) {
  LoadedResidual residual{.keeps_normed = spec.keeps_normed, .keep = spec.keep, .add = spec.add};
  residual.connection = TakeConnection(spec.connection, model.hidden, parameters);
  if (!spec.output_norm.empty()) {
    residual.output_norm = TakeNorm(spec.output_norm, model.hidden, model.norm_eps, parameters);
  }
  return residual;
}

TrainedNorm TakeNormIfAny(const NormSpec& spec, const ModelSpec& model,
                          ParameterSource& parameters) {
  if (spec.empty()) return {};
  return TakeNorm(spec, model.hidden, model.norm_eps, parameters);
}

}  // namespace

absl::StatusOr<LoadedLayer> TakeLayer(const LayerSpec& spec, const ModelSpec& model,
                                      const MixerOptions& options, ParameterSource& parameters,
                                      const MixerMaker& make_mixer) {
  LoadedLayer layer;
  layer.state_layout = options.NewLayout();
  layer.mixer_type = spec.mixer_type;
  for (const BesideSpec& beside : spec.beside) layer.mixer_type += "+" + beside.mixer_type;
  layer.reads_embeddings = spec.reads_embeddings;
  if (spec.has_mixer()) {
    layer.mixer_norm = TakeNormIfAny(spec.mixer_norm, model, parameters);
    RIVULET_ASSIGN_OR_RETURN(layer.mixer, TakeMixers(spec, make_mixer));
    layer.state_layout.Append(layer.mixer->state_layout(), "");
    layer.mixer_residual = TakeResidual(spec.mixer_residual, model, parameters);
  }
  if (spec.ngrams.has_value()) {
    layer.ngrams = TakeNgrams(*spec.ngrams, model.hidden, layer.state_layout, parameters);
    layer.ngram_state = layer.state_layout.Append(layer.ngrams->state_layout(), "ngrams.");
  }
  if (!spec.has_feed_forward()) return layer;
  layer.feed_forward_norm = TakeNormIfAny(spec.feed_forward_norm, model, parameters);
  layer.feed_forward = TakeFeedForward(spec.feed_forward, model.hidden, options, parameters);
  if (const StateLayout* state = layer.feed_forward->state_layout(); state != nullptr) {
    layer.feed_forward_state = layer.state_layout.Append(*state, "feed_forward.");
  }
  layer.feed_forward_residual = TakeResidual(spec.feed_forward_residual, model, parameters);
  if (options.device == nullptr || layer.feed_forward->runs_on_device()) return layer;
  return absl::UnimplementedError(
      "this model's feed-forward has no CUDA kernels yet; use --device cpu");
}

}  // namespace rivulet
