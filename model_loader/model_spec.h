// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint directory says it is: config.json turned into the few things that every
// architecture shares, and for each layer the mixer's type with its own configuration. Each public
// format (fla, HF/fla mamba2, ours) has one file that makes a ModelSpec; nothing above this knows
// which format a model came from.
//
// Goals: one description for all formats; every error names key, value and remedy.
// Non-goals: it reads no tensor, and does not interpret a mixer's own keys (kernels/mixers does).
#ifndef RIVULET_MODEL_LOADER_MODEL_SPEC_H_
#define RIVULET_MODEL_LOADER_MODEL_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// NOLINTNEXTLINE(bugprone-exception-escape): moving a json does not throw; the check cannot see it
struct LayerSpec {
  std::string mixer_type;       // a name in MixerRegistry(): "hla", "gla", ...
  nlohmann::json mixer_config;  // config.json with this layer's layer_config merged over it
  std::string mixer_prefix;     // "model.layers.0.attn."
  std::string mixer_norm;       // tensor name of the RMSNorm before the mixer
  std::string mlp_norm;         // empty: the block has no MLP (Mamba-2)
  std::string mlp_prefix;       // "model.layers.0.mlp."
  size_t intermediate = 0;
};

struct ModelSpec {
  std::string architecture;  // model_type
  size_t vocab = 0;
  size_t hidden = 0;
  float norm_eps = 0;
  std::vector<LayerSpec> layers;
  std::string embeddings;             // tensor names
  std::string embeddings_older_name;  // of the same tensor in older files; empty: none
  std::string final_norm;
  std::string lm_head;  // equal to `embeddings` when tied
  std::vector<uint32_t> eos_ids;
  int64_t bos_id = -1;  // -1: none

  bool tied() const { return lm_head == embeddings; }
};

// `config` is the parsed config.json (model_loader/json.h). INVALID_ARGUMENT names the key.
absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& config);

// The ids of "eos_token_id", a number, a list of numbers or absent, each below `vocab`.
absl::StatusOr<std::vector<uint32_t>> ParseEosIds(const nlohmann::json& config, size_t vocab);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MODEL_SPEC_H_
