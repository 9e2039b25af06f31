// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/config_reader.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr size_t kLongestValue = 80;

// ASCII only, so that cutting it leaves valid text. Invalid UTF-8 is replaced: dump would throw.
std::string Show(const json* value) {
  if (value == nullptr) return "missing";
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
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
  return std::nullopt;  // NaN is never a valid setting
}

// A whole number from 0 on, also when written as 4.0.
std::optional<size_t> AsSize(const json& value) {
  if (value.is_number_unsigned()) return value.get<size_t>();
  // The parser makes 4 unsigned; C++ code that builds a config makes it signed.
  if (value.is_number_integer() && value.get<int64_t>() >= 0) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(number >= 0 && number <= 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<size_t>(number);
}

}  // namespace

const json* ConfigReader::Find(std::string_view key) const {
  if (!object_->is_object()) return nullptr;
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::IsNull(std::string_view key) const {
  return object_->is_object() && object_->contains(key) && !Has(key);
}

std::string_view ConfigReader::Spelling(std::initializer_list<std::string_view> keys) const {
  for (const std::string_view key : keys) {
    if (Has(key)) return key;
  }
  return *keys.begin();
}

bool ConfigReader::Bool(std::string_view key, std::optional<bool> otherwise) {
  const json* value = Find(key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  Fail(key, "it must be true or false");
  return otherwise.value_or(false);
}

size_t ConfigReader::Size(std::string_view key, std::optional<size_t> otherwise, size_t minimum,
                          size_t maximum) {
  const json* value = Find(key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  const std::optional<size_t> size = value == nullptr ? std::nullopt : AsSize(*value);
  if (size.has_value() && *size >= minimum && *size <= maximum) return *size;
  Fail(key, absl::StrCat("it must be a whole number from ", minimum, " to ", maximum));
  return otherwise.value_or(minimum);
}

double ConfigReader::Number(std::string_view key, std::optional<double> otherwise, double low,
                            double high) {
  const json* value = Find(key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  const std::optional<double> number = value == nullptr ? std::nullopt : AsNumber(*value);
  if (number.has_value() && *number >= low && *number <= high) return *number;
  Fail(key, std::isinf(low) && std::isinf(high)
                ? "it must be a number"
                : absl::StrCat("it must be a number from ", low, " to ", high));
  return otherwise.value_or(std::isinf(low) ? 0 : low);
}

float ConfigReader::Eps(std::string_view key, double otherwise) {
  const double eps = Number(key, otherwise);
  Require(eps > 0 && eps < 1, key, "it must be between 0 and 1");
  return static_cast<float>(eps);
}

std::string ConfigReader::String(std::string_view key, std::optional<std::string_view> otherwise) {
  const json* value = Find(key);
  if (value == nullptr && otherwise.has_value()) return std::string(*otherwise);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  Fail(key, "it must be a string");
  return std::string(otherwise.value_or(""));
}

std::vector<double> ConfigReader::Numbers(std::string_view key) {
  const json* value = Find(key);
  std::vector<double> numbers;
  if (value == nullptr) return numbers;
  Require(value->is_array(), key, "it must be a list of numbers");
  if (!value->is_array()) return numbers;
  for (const json& element : *value) {
    const std::optional<double> number = AsNumber(element);
    Require(number.has_value(), key, "it must be a list of numbers");
    numbers.push_back(number.value_or(0));
  }
  return numbers;
}

std::vector<size_t> ConfigReader::Layers(std::string_view key, size_t layers) {
  std::vector<size_t> indices;
  for (const double number : Numbers(key)) {
    const bool valid =
        number >= 0 && number < static_cast<double>(layers) && number == std::floor(number);
    Require(valid, key, absl::StrCat("its entries must be layers, from 0 to ", layers - 1));
    if (valid) indices.push_back(static_cast<size_t>(number));
  }
  return indices;
}

void ConfigReader::RequireDivides(size_t part, std::string_view key, std::string_view whole_name,
                                  size_t whole) {
  Require(whole % part == 0, key,
          absl::StrCat("it must divide ", ToAbsl(whole_name), " ", whole, " without remainder"));
}

void ConfigReader::Fail(std::string_view key, std::string_view remedy) {
  if (!ok()) return;
  Fail(absl::StrCat(ToAbsl(key), " is ", Show(Find(key)), ": ", ToAbsl(remedy)));
}

void ConfigReader::Fail(const absl::Status& status) {
  if (ok()) status_ = status;
}

}  // namespace rivulet
