// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys of config.json that hold one entry for each layer (layer_types, layer_config). Threading:
// pure functions. Errors are INVALID_ARGUMENT and name key, value and remedy.
#ifndef RIVULET_MODEL_LOADER_LAYER_LIST_H_
#define RIVULET_MODEL_LOADER_LAYER_LIST_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// The list, of `layers` entries; null where the config has no such key. Points into `config`.
absl::StatusOr<const nlohmann::json*> LayerList(const nlohmann::json& config, std::string_view key,
                                                size_t layers);

// Entry `layer`, which must be a string.
absl::StatusOr<std::string> LayerListName(const nlohmann::json& list, std::string_view key,
                                          size_t layer);

// For layouts whose layers are all alike: layer_types may be absent or name `mixer` throughout;
// anything else would be a mixture, which needs a model_type in fla's layout.
absl::Status RefuseMixture(const nlohmann::json& config, size_t layers, std::string_view mixer);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_LAYER_LIST_H_
