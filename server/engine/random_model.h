// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A model of any shape with random weights, made in memory from a config.json alone: for tests of
// the engine, and for benchmarks of shapes without a checkpoint. Its numbers are finite; its text
// is noise.
#ifndef RIVULET_SERVER_ENGINE_RANDOM_MODEL_H_
#define RIVULET_SERVER_ENGINE_RANDOM_MODEL_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "model_loader/loaded_model.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// Every weight is a function of (seed, tensor name, place). Fails as ParseModelSpec and the mixers'
// factories do. There is no tokenizer.
absl::StatusOr<std::shared_ptr<const LoadedModel>> MakeRandomModel(const nlohmann::json& config,
                                                                   uint64_t seed,
                                                                   const LoadOptions& options);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_RANDOM_MODEL_H_
