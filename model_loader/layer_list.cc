// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/layer_list.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {

using nlohmann::json;

const json* LayerList(ConfigReader& config, std::string_view key, size_t layers) {
  const json* list = config.Find(key);
  if (list == nullptr) return nullptr;
  if (list->is_array() && list->size() == layers) return list;
  config.Require(list->is_array(), key, "it must be a list, one entry per layer");
  config.Fail(absl::InvalidArgumentError(absl::StrCat(ToAbsl(key), " has ", list->size(),
                                                      " entries, but num_hidden_layers is ", layers,
                                                      ": give one entry per layer")));
  return nullptr;
}

std::vector<std::string> LayerListNames(ConfigReader& config, std::string_view key, size_t layers) {
  std::vector<std::string> names;
  const json* list = LayerList(config, key, layers);
  for (size_t i = 0; list != nullptr && i < layers; ++i) {
    const json& entry = (*list)[i];
    names.push_back(entry.is_string() ? entry.get<std::string>() : "");
    if (entry.is_string()) continue;
    config.Fail(
        absl::InvalidArgumentError(absl::StrCat(ToAbsl(key), ": entry ", i, " must be a string")));
  }
  return names;
}

void RefuseMixture(ConfigReader& config, size_t layers, std::string_view mixer) {
  const std::vector<std::string> types = LayerListNames(config, "layer_types", layers);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == mixer) continue;
    config.Fail(absl::InvalidArgumentError(absl::StrCat(
        "layer_types: entry ", i, " is \"", types[i], "\", but in this layout every layer is ",
        ToAbsl(mixer), ": leave layer_types out, or write a mixture in fla's layout (model_type ",
        "hla or another that is named after its mixer)")));
  }
}

}  // namespace rivulet
