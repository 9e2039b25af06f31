// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

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
constexpr std::string_view kOriginal = "original_max_position_embeddings";
constexpr std::string_view kMost = "max_position_embeddings";
constexpr std::string_view kAmplitude = "attention_factor";

// rope_parameters, else rope_scaling: the object that names type and factors. theta, the part that
// is rotated and the positions of the training are in it or in config.json itself, which comes
// first for the latter, as in transformers.
json Parameters(ConfigReader& config, bool reads_outer_part) {
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
  for (const std::string_view name : {kTheta, kPart, kOriginal, kMost}) {
    if (name == kPart && !reads_outer_part) continue;
    const bool outer_first = name == kOriginal || name == kMost;
    if (config.Has(name) && (outer_first || !ConfigReader(parameters).Has(name))) {
      parameters[std::string(name)] = *config.Find(name);
    }
  }
  return parameters;
}

// Bounds that keep angles finite at any position.
constexpr double kLeastFactor = 1e-6;
constexpr double kMostFactor = 1e9;

float ReadFactor(ConfigReader& config, std::string_view key) {
  return config.Float(key, std::nullopt, kLeastFactor, kMostFactor);
}

// int(head_dim · factor) numbers, as transformers rounds. Where that is odd one more is rotated, by
// the frequencies of the odd number.
void ReadWidth(ConfigReader& config, const RopeDefaults& defaults, RopeConfig& rope) {
  const double part = defaults.part.has_value() ? config.Number(kPart, defaults.part) : 1.0;
  const double width = std::floor(static_cast<double>(defaults.head_dim) * part);
  if (width >= 1 && part <= 1 && (part < 1 || defaults.head_dim % 2 == 0)) {
    rope.period = static_cast<size_t>(width);
    rope.rotary_dim = rope.period + rope.period % 2;
    return;
  }
  if (part != 1) {
    config.Fail(kPart, absl::StrCat("of a head of ", defaults.head_dim,
                                    " it must leave one dimension or more to rotate, and no more "
                                    "than there are"));
  } else {
    config.Fail(absl::StrCat("the head size ", defaults.head_dim,
                             " cannot be rotated in pairs: it must be even"));
  }
  rope.rotary_dim = 2;
}

float ReadOriginal(ConfigReader& config) {
  return ReadFactor(config, config.Has(kOriginal) ? kOriginal : kMost);
}

// How far a model was stretched: `factor`, or by its positions now and then.
float ReadStretch(ConfigReader& config, const RopeConfig& rope) {
  if (config.Has("factor")) return ReadFactor(config, "factor");
  return ReadFactor(config, kMost) / rope.original_max_position;
}

void ReadLlama3(ConfigReader& config, RopeConfig& rope) {
  rope.low_freq_factor = ReadFactor(config, "low_freq_factor");
  rope.high_freq_factor = ReadFactor(config, "high_freq_factor");
  rope.original_max_position = ReadOriginal(config);
  config.Require(rope.high_freq_factor > rope.low_freq_factor, "high_freq_factor",
                 absl::StrCat("it must be above low_freq_factor ", rope.low_freq_factor));
}

// DeepSeek's way to write the amplitude.
double MScale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

float YarnAmplitude(ConfigReader& config, double factor) {
  if (config.Has(kAmplitude)) return ReadFactor(config, kAmplitude);
  const double scale = config.Number("mscale", 0.0, 0.0, 1e6);
  const double all = config.Number("mscale_all_dim", 0.0, 0.0, 1e6);
  if (scale == 0 || all == 0) return static_cast<float>(MScale(factor, 1));
  return static_cast<float>(MScale(factor, scale) / MScale(factor, all));
}

void ReadYarn(ConfigReader& config, RopeConfig& rope) {
  rope.original_max_position = ReadOriginal(config);
  rope.factor = ReadStretch(config, rope);
  rope.amplitude = YarnAmplitude(config, rope.factor);
  const double fast = config.Number("beta_fast", 0.0, 0.0, 1e9);
  const double slow = config.Number("beta_slow", 0.0, 0.0, 1e9);
  if (fast != 0) rope.beta_fast = fast;
  if (slow != 0) rope.beta_slow = slow;
  rope.whole_ramp = config.Bool("truncate", true);
  config.Require(rope.theta > 1, kTheta, "with rope_type yarn it must be above 1");
}

std::vector<float> ReadDivisors(ConfigReader& config, std::string_view key, size_t count) {
  std::vector<float> divisors(count, 1.0f);
  const std::vector<double> given = config.Numbers(key);
  config.Require(given.size() == count, key, absl::StrCat("it must be a list of ", count));
  for (size_t i = 0; i < std::min(count, given.size()); ++i) {
    const bool sound = given[i] >= kLeastFactor && given[i] <= kMostFactor;
    config.Require(sound, key, "its numbers must be from 1e-06 to 1e+09");
    if (sound) divisors[i] = static_cast<float>(given[i]);
  }
  return divisors;
}

// transformers takes long_factor for all tokens of a pass that sees more than the original
// positions: keys would have to be rotated anew when a session grows past them. A session here
// ends there.
void ReadLong(ConfigReader& config, RopeConfig& rope) {
  rope.original_max_position = ReadOriginal(config);
  rope.divisors = ReadDivisors(config, "short_factor", rope.rotary_dim / 2);
  const bool same = ReadDivisors(config, "long_factor", rope.rotary_dim / 2) == rope.divisors;
  if (!same) rope.most_tokens = static_cast<uint64_t>(rope.original_max_position);
  config.Require(rope.original_max_position >= 2, kOriginal, "with longrope it must be 2 or more");
  if (config.Has(kAmplitude)) {
    rope.amplitude = ReadFactor(config, kAmplitude);
    return;
  }
  const double factor = ReadStretch(config, rope);
  if (factor <= 1) return;
  const double original = rope.original_max_position;
  rope.amplitude = static_cast<float>(std::sqrt(1 + std::log(factor) / std::log(original)));
}

std::string_view TypeKey(const ConfigReader& config) {
  return config.Spelling({"rope_type", "type"});
}

bool IsDynamic(const ConfigReader& config) {
  const json* const type = config.Find(TypeKey(config));
  return type != nullptr && *type == "dynamic";
}

// transformers raises theta with the length of a pass that sees more than the positions of the
// training. Up to that length no factor has an effect, and a session is limited to it here.
void ReadDynamic(ConfigReader& config, RopeConfig& rope) {
  ReadFactor(config, "factor");
  rope.most_tokens = config.Size(kMost, std::nullopt, 1, UINT32_MAX);
}

RopeScaling ReadScaling(ConfigReader& config) {
  return config.Choice<RopeScaling>(TypeKey(config), "default",
                                    {{"default", RopeScaling::kNone},
                                     {"linear", RopeScaling::kLinear},
                                     {"llama3", RopeScaling::kLlama3},
                                     {"yarn", RopeScaling::kYarn},
                                     {"longrope", RopeScaling::kLong}});
}

void ReadScaled(ConfigReader& config, RopeConfig& rope) {
  const bool by_index = rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLong;
  config.Require(!by_index || rope.period == rope.rotary_dim, kPart,
                 "with yarn and longrope it must leave an even number of dimensions to rotate");
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return;
    case RopeScaling::kLlama3:
      ReadLlama3(config, rope);
      [[fallthrough]];
    case RopeScaling::kLinear:
      rope.factor = ReadFactor(config, "factor");
      return;
    case RopeScaling::kYarn:
      return ReadYarn(config, rope);
    case RopeScaling::kLong:
      return ReadLong(config, rope);
  }
}

}  // namespace

RopeConfig ParseRope(ConfigReader& config, const RopeDefaults& defaults) {
  const json parameters = Parameters(config, defaults.reads_outer_part);
  ConfigReader reader(parameters);
  RopeConfig rope;
  rope.theta = reader.Float(kTheta, defaults.theta, 1, 3e38);
  ReadWidth(reader, defaults, rope);
  if (IsDynamic(reader)) {
    ReadDynamic(reader, rope);
  } else {
    rope.scaling = ReadScaling(reader);
    if (reader.ok()) ReadScaled(reader, rope);
  }
  config.Fail(reader.status());
  return rope;
}

}  // namespace rivulet
