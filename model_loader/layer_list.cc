// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/layer_list.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/json_fields.h"

namespace rivulet {

using nlohmann::json;

absl::StatusOr<const json*> LayerList(const json& config, std::string_view key, size_t layers) {
  if (!HasField(config, key)) return nullptr;
  const json& list = *config.find(key);
  if (!list.is_array()) return FieldError(config, key, "it must be a list, one entry a layer");
  if (list.size() == layers) return &list;
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(key), " has ", list.size(),
                                                 " entries, but num_hidden_layers is ", layers,
                                                 ": give one entry a layer"));
}

absl::StatusOr<std::string> LayerListName(const json& list, std::string_view key, size_t layer) {
  const json& entry = list[layer];
  if (entry.is_string()) return entry.get<std::string>();
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(key), ": entry ", layer, " must be a string"));
}

absl::Status RefuseMixture(const json& config, size_t layers, std::string_view mixer) {
  RIVULET_ASSIGN_OR_RETURN(const json* types, LayerList(config, "layer_types", layers));
  for (size_t i = 0; types != nullptr && i < layers; ++i) {
    RIVULET_ASSIGN_OR_RETURN(const std::string type, LayerListName(*types, "layer_types", i));
    if (type == mixer) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "layer_types: entry ", i, " is \"", type, "\", but in this layout every layer is ",
        ToAbsl(mixer), ": leave layer_types out, or write a mixture in fla's layout (model_type ",
        "hla or another that is named after its mixer)"));
  }
  return absl::OkStatus();
}

}  // namespace rivulet
