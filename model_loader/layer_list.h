// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Keys of config.json that hold one entry for each layer (layer_types, layer_config). Errors go to
// the reader. Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_LAYER_LIST_H_
#define RIVULET_MODEL_LOADER_LAYER_LIST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "model_loader/config_reader.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// The list, of `layers` entries; null where the config has no such key and after an error. Points
// into the config.
const nlohmann::json* LayerList(ConfigReader& config, std::string_view key, size_t layers);

// The list's entries, which must be strings; empty where LayerList is null.
std::vector<std::string> LayerListNames(ConfigReader& config, std::string_view key, size_t layers);

// For layouts whose layers are all alike: layer_types may be absent or name `mixer` throughout.
// Anything else is a mixture, which needs a model_type in fla's layout.
void RefuseMixture(ConfigReader& config, size_t layers, std::string_view mixer);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_LAYER_LIST_H_
