// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Each mixer's keys of config.json, read into its config (kernels/mixers/mixer_config.h): one
// function a mixer, in a file named after it, and the table of the names that checkpoints use.
// Errors go to the reader and name key, value and remedy; what is returned beside an error is not
// to be used. The keys are those of fla, or of the library that first published the mixer; the
// README of the mixer's folder lists them.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_MIXERS_PARSERS_H_
#define RIVULET_MODEL_LOADER_MIXERS_PARSERS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer_config.h"
#include "model_loader/config_reader.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// `hidden` is the width of the residual stream.
AnnaConfig ParseAnna(ConfigReader& config, size_t hidden);
DeltaRuleConfig ParseDeltaNet(ConfigReader& config, size_t hidden);
DeltaRuleConfig ParseGatedDeltaNet(ConfigReader& config, size_t hidden);
GlaConfig ParseGla(ConfigReader& config, size_t hidden);
H3Config ParseH3(ConfigReader& config, size_t hidden);
HlaConfig ParseHla(ConfigReader& config, size_t hidden);
LinearAttentionConfig ParseLinearAttention(ConfigReader& config, size_t hidden);
LogLinearGatedDeltaNetConfig ParseLogLinearGatedDeltaNet(ConfigReader& config, size_t hidden);
LogLinearMamba2Config ParseLogLinearMamba2(ConfigReader& config, size_t hidden);
MambaConfig ParseMamba(ConfigReader& config, size_t hidden);
Mamba2Config ParseMamba2(ConfigReader& config, size_t hidden);
RetNetConfig ParseRetNet(ConfigReader& config, size_t hidden);
SoftmaxAttentionConfig ParseSoftmaxAttention(ConfigReader& config, size_t hidden);

// Softmax attention's heads have a largest size.
void CheckAttentionHeadDim(ConfigReader& config, size_t head_dim);

// All heads of the delta rule side by side must be a sensible width for a projection.
void CheckDeltaRuleColumns(ConfigReader& config, std::string_view key, size_t heads, size_t width);

// time_step_limit: the bounds of Mamba-2's Δ.
void ReadMamba2Limit(ConfigReader& config, Mamba2Config& mamba2);

struct MixerParser {
  std::string_view type;  // the name in layer_types and model_type: "hla", "gla", ...
  MixerConfig (*parse)(ConfigReader& config, size_t hidden);
};

std::span<const MixerParser> MixerParsers();

// Null when no mixer has this name.
const MixerParser* FindMixerParser(std::string_view type);

// INVALID_ARGUMENT when the name is unknown, listing the known ones, or when a key is wrong.
absl::StatusOr<MixerConfig> ParseMixer(std::string_view type, const nlohmann::json& config,
                                       size_t hidden);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MIXERS_PARSERS_H_
