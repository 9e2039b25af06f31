// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "model_loader/model_spec.h"

#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/base/strings.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/mixer.h"
#include "model_loader/formats.h"

namespace rivulet {
namespace {

using nlohmann::json;

// The model types whose files lie otherwise than fla's. Any other type that names a mixer is a
// model of that mixer in fla's layout, so a new mixer needs no line here.
struct Format {
  std::string_view model_type;
  absl::StatusOr<ModelSpec> (*parse)(const json& config);
};
constexpr Format kFormats[] = {
    {"falcon_mamba", ParseFalconMambaSpec},
    {"granitemoehybrid", ParseGraniteSpec},
    {"h3", ParseH3Spec},
    {"hattention", ParseLogLinearMamba2Spec},
    {"llama", ParseLlamaSpec},
    {"log_linear_mamba2", ParseLogLinearMamba2Spec},
    {"mamba", ParseMambaSpec},
    {"mamba2", ParseMamba2Spec},
    {"mistral", ParseMistralSpec},
    {"qwen2", ParseQwen2Spec},
    {"qwen3", ParseQwen3Spec},
    {"qwen3_next", ParseQwen3NextSpec},
    {"transformer", ParseFlaSpec},
};

std::string KnownTypes() {
  std::set<std::string_view> types;
  for (const Format& format : kFormats) types.insert(format.model_type);
  for (const MixerEntry& mixer : MixerRegistry()) types.insert(mixer.type);
  std::string known;
  for (const std::string_view type : types) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", ToAbsl(type));
  }
  return known;
}

absl::StatusOr<ModelSpec> ParseByFormat(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(const std::string type, StringField(config, "model_type", std::nullopt));
  for (const Format& format : kFormats) {
    if (format.model_type == type) return format.parse(config);
  }
  if (FindMixer(type).ok()) return ParseFlaSpec(config);
  return FieldError(config, "model_type", "this server knows " + KnownTypes());
}

absl::StatusOr<double> ParseNormEps(const json& config, double otherwise) {
  for (const char* key : {"norm_eps", "rms_norm_eps", "layer_norm_epsilon"}) {
    if (!HasField(config, key)) continue;
    RIVULET_ASSIGN_OR_RETURN(const double eps, NumberField(config, key, std::nullopt));
    if (!(eps > 0 && eps < 1)) {
      return FieldError(config, key, "it must be greater than 0 and less than 1");
    }
    return eps;
  }
  return otherwise;
}

// Every layer keeps config.json for its mixer, except for the lists that have an entry a layer:
// what that may come to, so that a small file does not take gigabytes.
constexpr size_t kMostKeptValues = size_t{1} << 20;

size_t CountValues(const json& value) {
  size_t count = 1;
  if (!value.is_structured()) return count;
  for (const json& element : value) count += CountValues(element);
  return count;
}

absl::Status CheckKeptValues(const json& config) {
  constexpr const char* kKey = "num_hidden_layers";
  const absl::StatusOr<size_t> layers = SizeField(config, kKey, 1, 1, kMostLayers);
  if (!layers.ok()) return absl::OkStatus();  // the format says it, if it reads the key
  size_t values = CountValues(config);
  for (const char* list : {"layer_types", "layer_config"}) {
    if (HasField(config, list)) values -= CountValues(config[list]);
  }
  if (values <= kMostKeptValues / *layers) return absl::OkStatus();
  return FieldError(config, kKey,
                    absl::StrCat("for that many layers the file may hold ",
                                 kMostKeptValues / *layers, " values, but it holds ", values,
                                 ": remove those that the model does not need"));
}

}  // namespace

absl::StatusOr<ModelSpec> ParseModelSpec(const json& config) {
  const absl::Status kept = CheckKeptValues(config);
  absl::StatusOr<ModelSpec> spec = kept.ok() ? ParseByFormat(config) : kept;
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(), absl::StrCat("config.json: ", spec.status().message()));
}

absl::StatusOr<std::vector<uint32_t>> ParseEosIds(const json& config, size_t vocab) {
  std::vector<uint32_t> ids;
  if (!HasField(config, "eos_token_id")) return ids;
  const json& value = config["eos_token_id"];
  for (const json& element : value.is_array() ? value : json::array({value})) {
    const json field = {{"eos_token_id", element}};
    RIVULET_ASSIGN_OR_RETURN(const size_t id,
                             SizeField(field, "eos_token_id", std::nullopt, 0, vocab - 1));
    ids.push_back(static_cast<uint32_t>(id));
  }
  return ids;
}

// Norms do not see the unit of x once eps, which is beside x², has it too.
void FoldResidualMultiplier(double multiplier, ModelSpec& spec) {
  spec.embedding_multiplier = static_cast<float>(spec.embedding_multiplier / multiplier);
  spec.norm_eps = static_cast<float>(spec.norm_eps / (multiplier * multiplier));
}

absl::StatusOr<ModelSpec> ParseCommonFields(const json& config, double default_norm_eps) {
  ModelSpec spec;
  RIVULET_ASSIGN_OR_RETURN(spec.architecture, StringField(config, "model_type", std::nullopt));
  RIVULET_ASSIGN_OR_RETURN(spec.vocab, SizeField(config, "vocab_size", std::nullopt));
  RIVULET_ASSIGN_OR_RETURN(spec.hidden, SizeField(config, "hidden_size", std::nullopt));
  RIVULET_ASSIGN_OR_RETURN(const double eps, ParseNormEps(config, default_norm_eps));
  spec.norm_eps = static_cast<float>(eps);
  RIVULET_ASSIGN_OR_RETURN(spec.eos_ids, ParseEosIds(config, spec.vocab));
  if (HasField(config, "bos_token_id")) {
    RIVULET_ASSIGN_OR_RETURN(const size_t bos,
                             SizeField(config, "bos_token_id", std::nullopt, 0, spec.vocab - 1));
    spec.bos_id = static_cast<int64_t>(bos);
  }
  return spec;
}

}  // namespace rivulet
