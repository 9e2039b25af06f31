// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The public formats of checkpoints, one file each, listed in model_spec.cc. Errors go to the
// reader; see config_reader.h. Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_FORMATS_H_
#define RIVULET_MODEL_LOADER_FORMATS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_loader/config_reader.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// More layers, and more experts in one of them, than any model has; they bound what a config can
// make us allocate.
inline constexpr size_t kMostLayers = 1024;
inline constexpr size_t kMostExperts = 4096;

// What every format spells alike: sizes, eps of the norms, begin and end tokens. No layers, and no
// tensor names.
ModelSpec ParseCommonFields(ConfigReader& config, double default_norm_eps);

// The ids of "eos_token_id", a number, a list of numbers or absent, each below `vocab`.
std::vector<uint32_t> ParseEosIds(ConfigReader& config, size_t vocab);

// Sets the names outside of the layers. The output map is the embeddings where tie_word_embeddings
// says so.
void NameEnds(ConfigReader& config, const char* embeddings, const NormSpec& final_norm,
              bool default_tied, ModelSpec& spec);

// <prefix>{gate,up,down}_proj.
GatedMlpSpec NameGatedMlp(const std::string& prefix, size_t intermediate);

// num_hidden_layers.
size_t ParseLayerCount(ConfigReader& config);

// For keys that hold one entry for each layer (layer_types, layer_config):
// the list, of `layers` entries; null where the config has no such key and after an error. Points
// into the config.
const nlohmann::json* LayerList(ConfigReader& config, std::string_view key, size_t layers);

// The list's entries, which must be strings; empty where LayerList is null.
std::vector<std::string> LayerListNames(ConfigReader& config, std::string_view key, size_t layers);

// For layouts whose layers are all alike: layer_types may be absent or name `mixer` throughout.
// Anything else is a mixture, which needs a model_type in fla's layout.
void RefuseMixture(ConfigReader& config, size_t layers, std::string_view mixer);

// x += multiplier · f(norm(x)) in every block is x += f(norm(x)) for a residual stream in units of
// `multiplier`: embeddings and eps change, the forward pass does not. REQUIRES: multiplier > 0.
void FoldResidualMultiplier(double multiplier, ModelSpec& spec);

// fla_format.cc: every mixer's name as a model type, fla's transformer, and mixtures of mixers.
ModelSpec ParseFlaSpec(ConfigReader& config);

// fla's width of a gated MLP: intermediate_size, or two thirds of hidden_ratio · hidden, rounded up
// to a multiple of 256.
size_t ParseFlaIntermediate(ConfigReader& config, size_t hidden);

// mamba_format.cc: mamba, falcon_mamba and mamba2 as transformers, fla (mamba2) and the converted
// state-spaces files write them; log_linear_mamba2 (fla) and hattention (Guo et al.).
ModelSpec ParseLogLinearMamba2Spec(ConfigReader& config);
ModelSpec ParseMambaSpec(ConfigReader& config);
ModelSpec ParseFalconMambaSpec(ConfigReader& config);
ModelSpec ParseMamba2Spec(ConfigReader& config);

// h3_format.cc: h3 as model_loader/convert_h3.py writes it.
ModelSpec ParseH3Spec(ConfigReader& config);

// llama_format.cc: llama, mistral, qwen2 and qwen3 as transformers writes them.
ModelSpec ParseLlamaSpec(ConfigReader& config);
ModelSpec ParseMistralSpec(ConfigReader& config);
ModelSpec ParseQwen2Spec(ConfigReader& config);
ModelSpec ParseQwen3Spec(ConfigReader& config);

// qwen3_next_format.cc: qwen3_next as transformers writes it.
ModelSpec ParseQwen3NextSpec(ConfigReader& config);

// granite_format.cc: granitemoehybrid (Granite 4 H) as transformers writes it.
ModelSpec ParseGraniteSpec(ConfigReader& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FORMATS_H_
