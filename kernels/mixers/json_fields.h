// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Typed reads of a JSON object's fields, for config.json. nlohmann's own getters throw when a value
// has another type than asked for; these return INVALID_ARGUMENT that names key, value and remedy,
// and never throw, whatever the value is.
//
// A key that is absent and a key that is null are the same: fla writes null for "the default". A
// number may be {"__float__": "Infinity"}, as transformers 5 writes what JSON cannot
// (docs/mixers.md#mamba-2).
//
// Threading: pure functions.
#ifndef RIVULET_KERNELS_MIXERS_JSON_FIELDS_H_
#define RIVULET_KERNELS_MIXERS_JSON_FIELDS_H_

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// The largest size that a config may ask for; a product of three of them fits a size_t.
inline constexpr size_t kLargestSize = size_t{1} << 20;

// Present and not null; false also when `object` is no object.
bool HasField(const nlohmann::json& object, std::string_view key);

// INVALID_ARGUMENT "<key> is <value>: <remedy>", with the value as compact JSON, cut when it is
// long, or "missing".
absl::Status FieldError(const nlohmann::json& object, std::string_view key,
                        std::string_view remedy);

// Each returns `otherwise` when the key is absent; without one (nullopt) an absent key is an error.
absl::StatusOr<bool> BoolField(const nlohmann::json& object, std::string_view key,
                               std::optional<bool> otherwise);
// A whole number in [minimum, maximum]. `otherwise` need not be in the range.
absl::StatusOr<size_t> SizeField(const nlohmann::json& object, std::string_view key,
                                 std::optional<size_t> otherwise, size_t minimum = 1,
                                 size_t maximum = kLargestSize);
// May be infinite; never NaN.
absl::StatusOr<double> NumberField(const nlohmann::json& object, std::string_view key,
                                   std::optional<double> otherwise);
// What a norm adds beside a square: between 0 and 1.
absl::StatusOr<float> EpsField(const nlohmann::json& object, std::string_view key,
                               std::optional<double> otherwise);
absl::StatusOr<std::string> StringField(const nlohmann::json& object, std::string_view key,
                                        std::optional<std::string_view> otherwise);
// The index in `choices` of the key's value; the error lists the choices.
absl::StatusOr<size_t> ChoiceField(const nlohmann::json& object, std::string_view key,
                                   std::optional<std::string_view> otherwise,
                                   std::initializer_list<std::string_view> choices);
// A list of numbers, each as in NumberField. Empty when absent.
absl::StatusOr<std::vector<double>> NumberListField(const nlohmann::json& object,
                                                    std::string_view key);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_JSON_FIELDS_H_
