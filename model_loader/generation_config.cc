// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/generation_config.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/json.h"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr size_t kLargestFile = 16 << 20;  // a tokenizer_config.json lists thousands of tokens
constexpr double kLargestFloat = std::numeric_limits<float>::max();
constexpr size_t kLargestCount = std::numeric_limits<uint32_t>::max();

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A number in [low, high], or in (low, high] when `open`.
absl::Status ReadNumber(const json& config, const char* key, double low, bool open, double high,
                        std::optional<float>& value) {
  if (!HasField(config, key)) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const double number, NumberField(config, key, std::nullopt));
  if (!(open ? number > low : number >= low) || number > high) {
    return FieldError(config, key,
                      absl::StrCat("it must be ", open ? "greater than " : "at least ", low,
                                   " and at most ", high));
  }
  value = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status ReadCount(const json& config, const char* key, std::optional<uint32_t>& value) {
  if (!HasField(config, key)) return absl::OkStatus();
  RIVULET_ASSIGN_OR_RETURN(const size_t count,
                           SizeField(config, key, std::nullopt, 0, kLargestCount));
  value = static_cast<uint32_t>(count);
  return absl::OkStatus();
}

absl::Status ReadDefaults(const json& config, GenerationDefaults& defaults) {
  RIVULET_RETURN_IF_ERROR(
      ReadNumber(config, "temperature", 0, false, kLargestFloat, defaults.temperature));
  RIVULET_RETURN_IF_ERROR(ReadNumber(config, "top_p", 0, true, 1, defaults.top_p));
  RIVULET_RETURN_IF_ERROR(ReadNumber(config, "min_p", 0, false, 0.999, defaults.min_p));
  RIVULET_RETURN_IF_ERROR(ReadNumber(config, "repetition_penalty", 0, true, kLargestFloat,
                                     defaults.repetition_penalty));
  RIVULET_RETURN_IF_ERROR(ReadCount(config, "top_k", defaults.top_k));
  return ReadCount(config, "max_new_tokens", defaults.max_tokens);
}

absl::Status AddEosIds(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids, ParseEosIds(config, spec.vocab));
  for (const uint32_t id : ids) {
    const auto end = spec.eos_ids.end();
    if (std::find(spec.eos_ids.begin(), end, id) == end) spec.eos_ids.push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& directory,
                                                          ModelSpec& spec) {
  GenerationDefaults defaults;
  const std::string path = directory + "/generation_config.json";
  if (!Exists(path)) return defaults;
  RIVULET_ASSIGN_OR_RETURN(const json config, ReadJsonObject(path, kLargestFile));
  absl::Status status = ReadDefaults(config, defaults);
  if (status.ok()) status = AddEosIds(config, spec);
  if (status.ok()) return defaults;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<bool> HasChatTemplate(const std::string& directory) {
  if (Exists(directory + "/chat_template.jinja")) return true;
  const std::string path = directory + "/tokenizer_config.json";
  if (!Exists(path)) return false;
  RIVULET_ASSIGN_OR_RETURN(const json config, ReadJsonObject(path, kLargestFile));
  return HasField(config, "chat_template");
}

}  // namespace rivulet
