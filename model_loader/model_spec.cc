// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/model_spec.h"

#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/strings.h"
#include "model_loader/formats.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

using nlohmann::json;

// The model types that have a layout of their own. Any other type that names a mixer is a model of
// that mixer in fla's layout, so a new mixer needs no line here.
struct Format {
  std::string_view model_type;
  ModelSpec (*parse)(ConfigReader& config);
};
constexpr Format kFormats[] = {
    {"bamba", ParseBambaSpec},
    {"falcon_h1", ParseFalconH1Spec},
    {"falcon_mamba", ParseFalconMambaSpec},
    {"glm5_next", ParseGlm5Spec},
    {"glm5_next_text", ParseGlm5Spec},
    {"granitemoehybrid", ParseGraniteSpec},
    {"h3", ParseH3Spec},
    {"hattention", ParseLogLinearMamba2Spec},
    {"jamba", ParseJambaSpec},
    {"kimi_linear", ParseKimiLinearSpec},
    {"lfm2", ParseLfm2Spec},
    {"lfm2_moe", ParseLfm2MoeSpec},
    {"llama", ParseLlamaSpec},
    {"log_linear_mamba2", ParseLogLinearMamba2Spec},
    {"mamba", ParseMambaSpec},
    {"mamba2", ParseMamba2Spec},
    {"minimax", ParseMiniMaxSpec},
    {"mistral", ParseMistralSpec},
    {"nemotron_h", ParseNemotronHSpec},
    {"olmo_hybrid", ParseOlmoHybridSpec},
    {"qwen2", ParseQwen2Spec},
    {"qwen3", ParseQwen3Spec},
    {"qwen3_5", ParseQwen35Spec},
    {"qwen3_5_moe", ParseQwen35Spec},
    {"qwen3_5_moe_text", ParseQwen35Spec},
    {"qwen3_5_text", ParseQwen35Spec},
    {"qwen3_next", ParseQwen3NextSpec},
    {"qwen4_exp", ParseQwen4ExpSpec},
    {"qwen4_exp_text", ParseQwen4ExpSpec},
    {"recurrent_gemma", ParseRecurrentGemmaSpec},
    {"rwkv6", ParseRwkv6Spec},
    {"rwkv7", ParseRwkv7Spec},
    {"transformer", ParseFlaSpec},
    {"zamba2", ParseZamba2Spec},
};

std::string KnownTypes() {
  std::set<std::string> types;
  for (const Format& format : kFormats) types.emplace(format.model_type);
  for (const MixerParser& mixer : MixerParsers()) types.emplace(mixer.type);
  return absl::StrJoin(types, ", ");
}

ModelSpec ParseByFormat(ConfigReader& config) {
  const std::string type = config.String("model_type");
  for (const Format& format : kFormats) {
    if (format.model_type == type) return format.parse(config);
  }
  if (FindMixerParser(type) != nullptr) return ParseFlaSpec(config);
  config.Fail("model_type", "this server knows " + KnownTypes());
  return {};
}

float ParseNormEps(ConfigReader& config, double otherwise) {
  const std::string_view key = config.Spelling({"norm_eps", "rms_norm_eps", "layer_norm_epsilon"});
  return config.Eps(key, otherwise);
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelSpec(const json& config) {
  ConfigReader reader(config);
  ModelSpec spec = ParseByFormat(reader);
  if (reader.ok()) return spec;
  return absl::Status(reader.status().code(),
                      absl::StrCat("config.json: ", reader.status().message()));
}

std::vector<uint32_t> ParseEosIds(ConfigReader& config, size_t vocab) {
  constexpr const char* kKey = "eos_token_id";
  std::vector<uint32_t> ids;
  const json* value = config.Find(kKey);
  if (value == nullptr) return ids;
  for (const json& element : value->is_array() ? *value : json::array({*value})) {
    const json field = {{kKey, element}};
    ConfigReader reader(field);
    ids.push_back(static_cast<uint32_t>(reader.Size(kKey, std::nullopt, 0, vocab - 1)));
    config.Fail(reader.status());
  }
  return ids;
}

void NameEnds(ConfigReader& config, const char* embeddings, const NormSpec& final_norm,
              bool default_tied, ModelSpec& spec) {
  spec.embeddings = embeddings;
  spec.final_norm = final_norm;
  spec.lm_head = config.Bool("tie_word_embeddings", default_tied) ? embeddings : "lm_head.weight";
}

GatedMlpSpec NameGatedMlp(const std::string& prefix, size_t intermediate) {
  return {intermediate, prefix + "gate_proj", prefix + "up_proj", prefix + "down_proj"};
}

// A norm does not change with the unit of x when eps, which is added to x², changes with it.
void FoldResidualMultiplier(double multiplier, ModelSpec& spec) {
  spec.embedding_multiplier = static_cast<float>(spec.embedding_multiplier / multiplier);
  spec.norm_eps = static_cast<float>(spec.norm_eps / (multiplier * multiplier));
}

const json* LayerList(ConfigReader& config, std::string_view key, size_t layers) {
  const json* list = config.Find(key);
  if (list == nullptr) return nullptr;
  if (list->is_array() && list->size() == layers) return list;
  config.Require(list->is_array(), key, "it must be a list, one entry per layer");
  config.Fail(absl::StrCat(ToAbsl(key), " has ", list->size(),
                           " entries, but num_hidden_layers is ", layers,
                           ": give one entry per layer"));
  return nullptr;
}

std::vector<std::string> LayerListNames(ConfigReader& config, std::string_view key, size_t layers) {
  std::vector<std::string> names;
  const json* list = LayerList(config, key, layers);
  for (size_t i = 0; list != nullptr && i < layers; ++i) {
    const json& entry = (*list)[i];
    names.push_back(entry.is_string() ? entry.get<std::string>() : "");
    if (entry.is_string()) continue;
    config.Fail(absl::StrCat(ToAbsl(key), ": entry ", i, " must be a string"));
  }
  return names;
}

void RefuseMixture(ConfigReader& config, size_t layers, std::string_view mixer) {
  const std::vector<std::string> types = LayerListNames(config, "layer_types", layers);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == mixer) continue;
    config.Fail(absl::StrCat(
        "layer_types: entry ", i, " is \"", types[i], "\", but in this layout every layer is ",
        ToAbsl(mixer), ": leave layer_types out, or write a mixture in fla's layout (model_type ",
        "hla or another that is named after its mixer)"));
  }
}

ModelSpec ParseCommonFields(ConfigReader& config, double default_norm_eps) {
  ModelSpec spec;
  spec.architecture = config.String("model_type");
  spec.vocab = config.Size("vocab_size");
  spec.hidden = config.Size("hidden_size");
  spec.norm_eps = ParseNormEps(config, default_norm_eps);
  spec.eos_ids = ParseEosIds(config, spec.vocab);
  if (config.Has("bos_token_id")) {
    const size_t bos = config.Size("bos_token_id", std::nullopt, 0, spec.vocab - 1);
    spec.bos_id = static_cast<int64_t>(bos);
  }
  return spec;
}

}  // namespace rivulet
