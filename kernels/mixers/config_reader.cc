// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/config_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {

const nlohmann::json* ConfigReader::Find(Keys keys, std::string_view* found) const {
  if (!config_.is_object()) return nullptr;
  for (const std::string_view key : keys) {
    const auto entry = config_.find(key);
    if (entry == config_.end() || entry->is_null()) continue;
    if (found != nullptr) *found = key;
    return &*entry;
  }
  return nullptr;
}

size_t ConfigReader::Size(Keys keys, size_t fallback) {
  std::string_view key = *keys.begin();
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) {
    if (fallback == 0) {
      Fail(absl::StrCat("config key ", ToAbsl(key), " is missing; add it to config.json"));
      return 1;
    }
    return fallback;
  }
  if (value->is_number_integer()) {
    const int64_t number = value->get<int64_t>();
    if (number >= 1 && number <= static_cast<int64_t>(kMaximum)) return static_cast<size_t>(number);
  }
  Expected(key, *value, absl::StrCat("an integer from 1 to ", kMaximum));
  return 1;
}

double ConfigReader::Number(Keys keys, double fallback, double low, double high) {
  std::string_view key;
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) return fallback;
  if (value->is_number()) {
    const double number = value->get<double>();
    if (std::isfinite(number) && number >= low && number <= high) return number;
  }
  Expected(key, *value, absl::StrCat("a number from ", low, " to ", high));
  return fallback;
}

bool ConfigReader::Bool(Keys keys, bool fallback) {
  std::string_view key;
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Expected(key, *value, "true or false");
  return fallback;
}

std::string ConfigReader::Text(Keys keys, std::string_view fallback) {
  std::string_view key;
  const nlohmann::json* value = Find(keys, &key);
  if (value == nullptr) return std::string(fallback);
  if (value->is_string()) return value->get<std::string>();
  Expected(key, *value, "a string");
  return std::string(fallback);
}

void ConfigReader::Fail(std::string_view message) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(ToAbsl(message));
}

void ConfigReader::Expected(std::string_view key, const nlohmann::json& value,
                            std::string_view expected) {
  const std::string text =
      value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 80);
  Fail(absl::StrCat("config key ", ToAbsl(key), " is ", text, ", expected ", ToAbsl(expected),
                    "; correct config.json"));
}

}  // namespace rivulet
