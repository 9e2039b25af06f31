// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/layer_list.h"

#include "absl/strings/str_cat.h"
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

}  // namespace rivulet
