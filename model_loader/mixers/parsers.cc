// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/mixers/parsers.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/strings.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

template <auto kParse>
MixerConfig Parse(ConfigReader& config, size_t hidden) {
  return kParse(config, hidden);
}

constexpr MixerParser kParsers[] = {
    {"softmax_attention", Parse<ParseSoftmaxAttention>},
    {"linear_attn", Parse<ParseLinearAttention>},
    {"gla", Parse<ParseGla>},
    {"delta_net", Parse<ParseDeltaNet>},
    {"gated_deltanet", Parse<ParseGatedDeltaNet>},
    {"retnet", Parse<ParseRetNet>},
    {"mamba2", Parse<ParseMamba2>},
    {"log_linear_mamba2", Parse<ParseLogLinearMamba2>},
    {"hattention", Parse<ParseLogLinearMamba2>},
    {"h_gated_deltanet", Parse<ParseLogLinearGatedDeltaNet>},
    {"log_linear_gated_deltanet", Parse<ParseLogLinearGatedDeltaNet>},
    {"hla", Parse<ParseHla>},
    {"anna", Parse<ParseAnna>},
    {"mamba", Parse<ParseMamba>},
    {"h3", Parse<ParseH3>},
    {"gated_convolution", Parse<ParseGatedConvolution>},
    {"rg_lru", Parse<ParseRgLru>},
    {"kda", Parse<ParseKda>},
    {"latent_attention", Parse<ParseLatentAttention>},
    {"rwkv6", Parse<ParseRwkv6>},
    {"rwkv7", Parse<ParseRwkv7>},
};

}  // namespace

std::span<const MixerParser> MixerParsers() { return kParsers; }

const MixerParser* FindMixerParser(std::string_view type) {
  for (const MixerParser& parser : kParsers) {
    if (parser.type == type) return &parser;
  }
  return nullptr;
}

absl::StatusOr<MixerConfig> ParseMixer(std::string_view type, const nlohmann::json& config,
                                       size_t hidden) {
  if (const MixerParser* parser = FindMixerParser(type); parser != nullptr) {
    ConfigReader reader(config);
    MixerConfig parsed = parser->parse(reader, hidden);
    if (reader.ok()) return parsed;
    return reader.status();
  }
  std::string known;
  for (const MixerParser& parser : kParsers) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", ToAbsl(parser.type));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no mixer \"", ToAbsl(type), "\"; this server has: ", known));
}

}  // namespace rivulet
