// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rope_config.h"

#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr std::string_view kOldKey = "rope_scaling";
constexpr std::string_view kNewKey = "rope_parameters";

// The object that names type and factors: rope_parameters, or rope_scaling, or an empty one.
absl::StatusOr<json> Parameters(const json& config) {
  const bool is_new = HasField(config, kNewKey);
  if (!is_new && !HasField(config, kOldKey)) return json::object();
  const std::string_view key = is_new ? kNewKey : kOldKey;
  const json& object = *config.find(key);
  if (!object.is_object()) return FieldError(config, key, "it must be an object or null");
  if (is_new && HasField(config, kOldKey) && *config.find(kOldKey) != object) {
    return FieldError(config, kOldKey, "rope_parameters says something else; keep one of them");
  }
  for (const json& value : object) {
    if (!value.is_object()) continue;
    return FieldError(config, key,
                      "one set of parameters for all layers is served, not one a type");
  }
  return object;
}

// The key of the parameters, else of the config itself, else `otherwise`.
absl::StatusOr<double> EitherNumber(const json& parameters, const json& config,
                                    std::string_view key, double otherwise) {
  return NumberField(HasField(parameters, key) ? parameters : config, key, otherwise);
}

// A factor, in bounds between which angles stay finite at any position.
absl::Status ReadFactor(const json& parameters, std::string_view key, float* value) {
  RIVULET_ASSIGN_OR_RETURN(const double number, NumberField(parameters, key, std::nullopt));
  if (!(number >= 1e-6 && number <= 1e9)) {
    return FieldError(parameters, key, "it must be a number from 1e-6 to 1e9");
  }
  *value = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status ReadTheta(const json& parameters, const json& config, RopeConfig* rope) {
  RIVULET_ASSIGN_OR_RETURN(const double theta,
                           EitherNumber(parameters, config, "rope_theta", rope->theta));
  if (!(theta >= 1 && theta <= 3e38)) {
    const json& owner = HasField(parameters, "rope_theta") ? parameters : config;
    return FieldError(owner, "rope_theta", "it must be a number from 1 to 3e38");
  }
  rope->theta = static_cast<float>(theta);
  return absl::OkStatus();
}

// int(head_dim · factor), as transformers rounds.
absl::Status ReadWidth(const json& parameters, const json& config, size_t head_dim,
                       RopeConfig* rope) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  RIVULET_ASSIGN_OR_RETURN(const double factor, EitherNumber(parameters, config, kKey, 1.0));
  const double width = std::floor(static_cast<double>(head_dim) * factor);
  if (width >= 2 && factor <= 1 && std::fmod(width, 2) == 0) {
    rope->rotary_dim = static_cast<size_t>(width);
    return absl::OkStatus();
  }
  const std::string remedy =
      absl::StrCat("of a head of ", head_dim,
                   " it must leave an even number of dimensions, 2 or more, to rotate");
  if (HasField(parameters, kKey)) return FieldError(parameters, kKey, remedy);
  if (HasField(config, kKey)) return FieldError(config, kKey, remedy);
  return absl::InvalidArgumentError(
      absl::StrCat("the head size ", head_dim, " cannot be rotated in pairs: it must be even"));
}

absl::StatusOr<RopeScaling> ReadType(const json& parameters) {
  const std::string_view key = HasField(parameters, "rope_type") ? "rope_type" : "type";
  RIVULET_ASSIGN_OR_RETURN(const std::string type, StringField(parameters, key, "default"));
  if (type == "default") return RopeScaling::kNone;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "llama3") return RopeScaling::kLlama3;
  return FieldError(parameters, key,
                    "this server rotates with default, linear and llama3; use a checkpoint with "
                    "one of these");
}

absl::Status ReadLlama3(const json& parameters, RopeConfig* rope) {
  RIVULET_RETURN_IF_ERROR(ReadFactor(parameters, "low_freq_factor", &rope->low_freq_factor));
  RIVULET_RETURN_IF_ERROR(ReadFactor(parameters, "high_freq_factor", &rope->high_freq_factor));
  RIVULET_RETURN_IF_ERROR(
      ReadFactor(parameters, "original_max_position_embeddings", &rope->original_max_position));
  if (rope->high_freq_factor > rope->low_freq_factor) return absl::OkStatus();
  return FieldError(parameters, "high_freq_factor",
                    absl::StrCat("it must be above low_freq_factor ", rope->low_freq_factor));
}

}  // namespace

absl::StatusOr<RopeConfig> ParseRope(const json& config, size_t head_dim) {
  RIVULET_ASSIGN_OR_RETURN(const json parameters, Parameters(config));
  RopeConfig rope;
  RIVULET_RETURN_IF_ERROR(ReadTheta(parameters, config, &rope));
  RIVULET_RETURN_IF_ERROR(ReadWidth(parameters, config, head_dim, &rope));
  RIVULET_ASSIGN_OR_RETURN(rope.scaling, ReadType(parameters));
  if (rope.scaling == RopeScaling::kNone) return rope;
  RIVULET_RETURN_IF_ERROR(ReadFactor(parameters, "factor", &rope.factor));
  if (rope.scaling == RopeScaling::kLlama3) {
    RIVULET_RETURN_IF_ERROR(ReadLlama3(parameters, &rope));
  }
  return rope;
}

}  // namespace rivulet
