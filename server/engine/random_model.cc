// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/random_model.h"

#include <utility>

#include "kernels/base/status.h"
#include "kernels/mixers/random_parameters.h"
#include "model_loader/layer_loader.h"

namespace rivulet {
namespace {

struct RandomModel {
  LoadedModel model;
  AlignedBuffer<float> table;  // what model.embeddings points to
};

absl::StatusOr<LoadedLayer> MakeLayer(const LayerSpec& spec, const ModelSpec& model, uint64_t seed,
                                      DType dtype, const MixerOptions& options,
                                      uint64_t& parameters) {
  RandomParameters own(seed, "", dtype, {}, options.device);
  const auto make = [&](const MixerConfig& config,
                        const std::string& prefix) -> absl::StatusOr<std::unique_ptr<Mixer>> {
    RandomParameters mixer(seed, prefix, dtype, {}, options.device);
    auto made = MakeMixer(config, {model.hidden, mixer, options});
    parameters += mixer.taken();
    return made;
  };
  auto layer = TakeLayer(spec, model, options, own, make);
  parameters += own.taken();
  return layer;
}

absl::Status AddPredictor(uint64_t seed, const LoadOptions& options, LoadedModel& model) {
  const PredictorSpec& spec = *model.spec.predictor;
  const size_t hidden = model.spec.hidden;
  const float eps = model.spec.norm_eps;
  RandomParameters own(seed, "", model.weight_dtype, {}, options.mixer.device);
  auto predictor = std::make_unique<LoadedPredictor>();
  predictor->embedding_norm = TakeNorm(spec.embedding_norm, hidden, eps, own);
  predictor->hidden_norm = TakeNorm(spec.hidden_norm, hidden, eps, own);
  predictor->fusion = own.TakeLinear({{spec.fusion, hidden, ""}}, 2 * hidden);
  predictor->final_norm = TakeNorm(spec.final_norm, hidden, eps, own);
  for (const LayerSpec& layer : spec.layers) {
    RIVULET_ASSIGN_OR_RETURN(
        LoadedLayer loaded,
        MakeLayer(layer, model.spec, seed, model.weight_dtype, options.mixer, model.parameters));
    predictor->layers.push_back(std::move(loaded));
  }
  model.parameters += own.taken();
  model.predictor = std::move(predictor);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> MakeRandomModel(const nlohmann::json& config,
                                                                   uint64_t seed,
                                                                   const LoadOptions& options) {
  auto random = std::make_shared<RandomModel>();
  LoadedModel& model = random->model;
  RIVULET_ASSIGN_OR_RETURN(model.spec, ParseModelSpec(config));
  model.name = "random";
  model.weight_dtype = options.weight_dtype.value_or(DType::kFloat32);
  model.state_dtype = options.mixer.state_dtype;
  const size_t hidden = model.spec.hidden, vocab = model.spec.vocab;
  for (const LayerSpec& spec : model.spec.layers) {
    RIVULET_ASSIGN_OR_RETURN(
        LoadedLayer layer,
        MakeLayer(spec, model.spec, seed, model.weight_dtype, options.mixer, model.parameters));
    model.layers.push_back(std::move(layer));
  }
  if (options.predictor && model.spec.predictor.has_value()) {
    RIVULET_RETURN_IF_ERROR(AddPredictor(seed, options, model));
  }
  const DType ends = model.weight_dtype == DType::kFloat8 ? DType::kBFloat16 : model.weight_dtype;
  RandomParameters own(seed, "", ends, {}, options.mixer.device);
  if (!model.spec.embedding_norm.empty()) {
    model.embedding_norm = TakeNorm(model.spec.embedding_norm, hidden, model.spec.norm_eps, own);
  }
  model.last_connection = TakeConnection(model.spec.last_connection, hidden, own);
  if (!model.spec.final_norm.empty()) {
    model.final_norm = TakeNorm(model.spec.final_norm, hidden, model.spec.norm_eps, own,
                                model.spec.logits_multiplier);
  }
  model.lm_head = own.TakeLinear({{model.spec.lm_head, vocab, ""}}, hidden);
  const bool tied = model.spec.tied();
  model.parameters += own.taken() + (tied ? 0 : vocab * hidden);
  random->table = own.TakeVector(model.spec.embeddings, {vocab, hidden});
  if (!tied) {  // around one, as vectors are
    for (size_t i = 0; i < random->table.size(); ++i) random->table[i] -= 1.0f;
  }
  model.embeddings = {random->table.data(), DType::kFloat32, vocab, hidden,
                      model.spec.embedding_multiplier};
  return std::shared_ptr<const LoadedModel>(random, &model);
}

}  // namespace rivulet
