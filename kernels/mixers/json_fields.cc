// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/json_fields.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr size_t kLongestValue = 80;

// Null when the key is absent or its value is null.
const json* Find(const json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// ASCII only, so that cutting it leaves valid text; invalid UTF-8 is replaced, so that dump cannot
// throw.
std::string Show(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "...";
  return text;
}

std::optional<double> AsNumber(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_object() || value.size() != 1) return std::nullopt;
  const auto name = value.find("__float__");
  if (name == value.end() || !name->is_string()) return std::nullopt;
  const std::string& text = name->get_ref<const std::string&>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;  // NaN makes sense nowhere
}

// A whole number from 0 on, also when written as 4.0.
std::optional<size_t> AsSize(const json& value) {
  if (value.is_number_unsigned()) return value.get<size_t>();
  // What a parser never makes of 4, but C++ code that builds a config does.
  if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= 0 && number <= 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<size_t>(number);
}

std::string Join(std::initializer_list<std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ToAbsl(name));
  }
  return text;
}

}  // namespace

bool HasField(const json& object, std::string_view key) { return Find(object, key) != nullptr; }

absl::Status FieldError(const json& object, std::string_view key, std::string_view remedy) {
  const json* value = Find(object, key);
  const std::string what = value == nullptr ? "missing" : Show(*value);
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(key), " is ", what, ": ", ToAbsl(remedy)));
}

absl::StatusOr<bool> BoolField(const json& object, std::string_view key,
                               std::optional<bool> otherwise) {
  const json* value = Find(object, key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  if (value == nullptr || !value->is_boolean()) {
    return FieldError(object, key, "it must be true or false");
  }
  return value->get<bool>();
}

absl::StatusOr<size_t> SizeField(const json& object, std::string_view key,
                                 std::optional<size_t> otherwise, size_t minimum, size_t maximum) {
  const json* value = Find(object, key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  const std::optional<size_t> size = value == nullptr ? std::nullopt : AsSize(*value);
  if (!size.has_value() || *size < minimum || *size > maximum) {
    return FieldError(object, key,
                      absl::StrCat("it must be a whole number from ", minimum, " to ", maximum));
  }
  return *size;
}

absl::StatusOr<double> NumberField(const json& object, std::string_view key,
                                   std::optional<double> otherwise) {
  const json* value = Find(object, key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  const std::optional<double> number = value == nullptr ? std::nullopt : AsNumber(*value);
  if (!number.has_value()) return FieldError(object, key, "it must be a number");
  return *number;
}

absl::StatusOr<std::string> StringField(const json& object, std::string_view key,
                                        std::optional<std::string_view> otherwise) {
  const json* value = Find(object, key);
  if (value == nullptr && otherwise.has_value()) return std::string(*otherwise);
  if (value == nullptr || !value->is_string()) {
    return FieldError(object, key, "it must be a string");
  }
  return value->get<std::string>();
}

absl::StatusOr<float> EpsField(const json& object, std::string_view key,
                               std::optional<double> otherwise) {
  RIVULET_ASSIGN_OR_RETURN(const double eps, NumberField(object, key, otherwise));
  if (eps > 0 && eps < 1) return static_cast<float>(eps);
  return FieldError(object, key, "must be between 0 and 1");
}

absl::StatusOr<size_t> ChoiceField(const json& object, std::string_view key,
                                   std::optional<std::string_view> otherwise,
                                   std::initializer_list<std::string_view> choices) {
  RIVULET_ASSIGN_OR_RETURN(const std::string name, StringField(object, key, otherwise));
  size_t index = 0;
  for (const std::string_view choice : choices) {
    if (choice == name) return index;
    ++index;
  }
  return FieldError(object, key, "it must be one of: " + Join(choices));
}

absl::StatusOr<std::vector<double>> NumberListField(const json& object, std::string_view key) {
  const json* value = Find(object, key);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) return FieldError(object, key, "it must be a list of numbers");
  for (const json& element : *value) {
    const std::optional<double> number = AsNumber(element);
    if (!number.has_value()) return FieldError(object, key, "it must be a list of numbers");
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace rivulet
