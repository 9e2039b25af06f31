// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/generation_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "model_loader/config_reader.h"
#include "model_loader/formats.h"
#include "model_loader/json.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

constexpr size_t kLargestFile = 16 << 20;  // a tokenizer_config.json lists thousands of tokens
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr size_t kLargestCount = std::numeric_limits<uint32_t>::max();

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A number in [low, high], or in (low, high] when `open`.
void ReadNumber(ConfigReader& config, const char* key, double low, bool open, double high,
                std::optional<float>& value) {
  if (!config.Has(key)) return;
  const double number = config.Number(key);
  const bool above = open ? number > low : number >= low;
  config.Require(above && number <= high, key,
                 absl::StrCat("it must be ", open ? "greater than " : "at least ", low,
                              " and at most ", high));
  value = static_cast<float>(number);
}

void ReadCount(ConfigReader& config, const char* key, std::optional<uint32_t>& value) {
  if (!config.Has(key)) return;
  value = static_cast<uint32_t>(config.Size(key, std::nullopt, 0, kLargestCount));
}

GenerationDefaults ReadDefaults(ConfigReader& config) {
  GenerationDefaults defaults;
  ReadNumber(config, "temperature", 0, false, kLargestFloat, defaults.temperature);
  ReadNumber(config, "top_p", 0, true, 1, defaults.top_p);
  ReadNumber(config, "min_p", 0, false, 0.999, defaults.min_p);
  ReadNumber(config, "repetition_penalty", 0, true, kLargestFloat, defaults.repetition_penalty);
  ReadCount(config, "top_k", defaults.top_k);
  ReadCount(config, "max_new_tokens", defaults.max_tokens);
  return defaults;
}

}  // namespace

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& directory,
                                                          ModelSpec& spec) {
  const std::string path = directory + "/generation_config.json";
  if (!Exists(path)) return GenerationDefaults();
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonObject(path, kLargestFile));
  ConfigReader config(json);
  const GenerationDefaults defaults = ReadDefaults(config);
  for (const uint32_t id : ParseEosIds(config, spec.vocab)) {
    const auto end = spec.eos_ids.end();
    if (std::find(spec.eos_ids.begin(), end, id) == end) spec.eos_ids.push_back(id);
  }
  if (config.ok()) return defaults;
  return absl::Status(config.status().code(), absl::StrCat(path, ": ", config.status().message()));
}

absl::StatusOr<bool> HasChatTemplate(const std::string& directory) {
  if (Exists(directory + "/chat_template.jinja")) return true;
  const std::string path = directory + "/tokenizer_config.json";
  if (!Exists(path)) return false;
  RIVULET_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonObject(path, kLargestFile));
  return ConfigReader(config).Has("chat_template");
}

}  // namespace rivulet
