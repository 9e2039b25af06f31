// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One layer of a model from its spec: norms, mixers, feed-forward. The caller says where the
// numbers come from: a checkpoint (loaded_model.cc) or a generator (random_model.cc).
//
// Threading: one thread.
#ifndef RIVULET_MODEL_LOADER_LAYER_LOADER_H_
#define RIVULET_MODEL_LOADER_LAYER_LOADER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/parameter_source.h"
#include "model_loader/loaded_model.h"
#include "model_loader/model_spec.h"

namespace rivulet {

// Makes one mixer of a layer; `prefix` begins its tensors' names.
using MixerMaker = std::function<absl::StatusOr<std::unique_ptr<Mixer>>(const MixerConfig& config,
                                                                        const std::string& prefix)>;

// `parameters` knows the tensors outside of mixers by the spec's names and records problems with
// them. UNIMPLEMENTED when the layer is made for a device that lacks something that it needs.
absl::StatusOr<LoadedLayer> TakeLayer(const LayerSpec& spec, const ModelSpec& model,
                                      const MixerOptions& options, ParameterSource& parameters,
                                      const MixerMaker& make_mixer);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_LAYER_LOADER_H_
