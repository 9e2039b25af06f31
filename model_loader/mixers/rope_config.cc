// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr std::string_view kOldKey = "rope_scaling";
constexpr std::string_view kNewKey = "rope_parameters";
constexpr std::string_view kTheta = "rope_theta";
constexpr std::string_view kPart = "partial_rotary_factor";

// rope_parameters, else rope_scaling: the object that names type and factors. theta and the part
// that is rotated are in it or in config.json itself.
json Parameters(ConfigReader& config) {
  const std::string_view key = config.Spelling({kNewKey, kOldKey});
  const json* object = config.Find(key);
  json parameters = json::object();
  if (object != nullptr) {
    config.Require(object->is_object(), key, "it must be an object or null");
    if (object->is_object()) parameters = *object;
  }
  if (key == kNewKey && config.Has(kOldKey)) {
    config.Require(*config.Find(kOldKey) == parameters, kOldKey,
                   "rope_parameters differs from it; keep one of them");
  }
  for (const json& value : parameters) {
    config.Require(
        !value.is_object(), key,
        "only one set of parameters for all layers is served, not one for each layer type");
  }
  for (const std::string_view name : {kTheta, kPart}) {
    if (!ConfigReader(parameters).Has(name) && config.Has(name)) {
      parameters[std::string(name)] = *config.Find(name);
    }
  }
  return parameters;
}

// A factor, within bounds that keep angles finite at any position.
float ReadFactor(ConfigReader& config, std::string_view key) {
  return config.Float(key, std::nullopt, 1e-6, 1e9);
}

// int(head_dim · factor), as transformers rounds.
size_t ReadWidth(ConfigReader& config, size_t head_dim, double default_part) {
  const double factor = config.Number(kPart, default_part);
  const double width = std::floor(static_cast<double>(head_dim) * factor);
  if (width >= 2 && factor <= 1 && std::fmod(width, 2) == 0) return static_cast<size_t>(width);
  if (config.Has(kPart)) {
    config.Fail(kPart, absl::StrCat("of a head of ", head_dim,
                                    " it must leave an even number of dimensions, 2 or more, to "
                                    "rotate"));
  } else {
    config.Fail(
        absl::StrCat("the head size ", head_dim, " cannot be rotated in pairs: it must be even"));
  }
  return 2;
}

void ReadLlama3(ConfigReader& config, RopeConfig& rope) {
  rope.low_freq_factor = ReadFactor(config, "low_freq_factor");
  rope.high_freq_factor = ReadFactor(config, "high_freq_factor");
  rope.original_max_position = ReadFactor(config, "original_max_position_embeddings");
  config.Require(rope.high_freq_factor > rope.low_freq_factor, "high_freq_factor",
                 absl::StrCat("it must be above low_freq_factor ", rope.low_freq_factor));
}

}  // namespace

RopeConfig ParseRope(ConfigReader& config, size_t head_dim, double default_part,
                     double default_theta) {
  const json parameters = Parameters(config);
  ConfigReader reader(parameters);
  RopeConfig rope;
  rope.theta = reader.Float(kTheta, default_theta, 1, 3e38);
  rope.rotary_dim = ReadWidth(reader, head_dim, default_part);
  rope.scaling = reader.Choice<RopeScaling>(reader.Spelling({"rope_type", "type"}), "default",
                                            {{"default", RopeScaling::kNone},
                                             {"linear", RopeScaling::kLinear},
                                             {"llama3", RopeScaling::kLlama3}});
  if (rope.scaling != RopeScaling::kNone) rope.factor = ReadFactor(reader, "factor");
  if (rope.scaling == RopeScaling::kLlama3) ReadLlama3(reader, rope);
  config.Fail(reader.status());
  return rope;
}

}  // namespace rivulet
