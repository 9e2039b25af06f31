// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The description of a model: config.json, read and validated once, as the few things that every
// architecture shares and a typed config for each layer's mixer. Each public format has one file
// that makes a ModelSpec (formats.h lists them); nothing above this knows which format a model came
// from, and nothing below reads JSON.
//
// Goals: one description for all formats; every error names key, value and remedy.
// Non-goals: it reads no tensor.
#ifndef RIVULET_MODEL_LOADER_MODEL_SPEC_H_
#define RIVULET_MODEL_LOADER_MODEL_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer_config.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// A norm over the residual stream, with the names of its tensors [hidden].
struct NormSpec {
  enum class Kind : uint8_t {
    kRms,
    kRmsOnePlus,  // RMSNorm whose tensor holds w for a weight of 1 + w
    kLayer,       // LayerNorm, with a bias
  };
  std::string weight;
  std::string bias = {};  // of kLayer
  Kind kind = Kind::kRms;

  bool empty() const { return weight.empty(); }
};

// In the feed-forward specs a map is named without ".weight" ("model.layers.0.mlp.down_proj"); with
// a bias it has a tensor ".bias" too.

// down(silu(gate x) · up x)
struct GatedMlpSpec {
  size_t intermediate = 0;
  std::string gate;  // [intermediate, hidden]; of both, gate rows first, where the file has no `up`
  std::string up;    // empty: `gate` is of both
  std::string down;
  bool bias = false;  // of all three
};

// second(gelu(first x)), gelu by tanh; both maps have biases.
struct TwoLayerMlpSpec {
  size_t intermediate = 0;
  std::string first;
  std::string second;
};

// The weighted sum of the gated MLPs that a router chooses for a token, and of one that all tokens
// share (kernels/ops/mixture_of_experts). Libraries have renamed tensors: of a list of names, the
// first that the file has is used.
struct MixtureOfExpertsSpec {
  size_t experts = 0;
  size_t experts_per_token = 0;
  size_t intermediate = 0;          // of one expert
  bool weights_sum_to_one = true;   // of the chosen ones; else those of all experts do
  std::vector<std::string> router;  // maps [experts, hidden]
  // Whole tensors of all experts: [experts, 2 · intermediate, hidden], gate rows first, and
  // [experts, hidden, intermediate].
  std::vector<std::string> gate_up;
  std::vector<std::string> down;
  // Where the file has none of those: <expert_list>{e}.gate_proj, up_proj, down_proj. Empty: it
  // must have them.
  std::string expert_list;
  GatedMlpSpec shared;      // intermediate 0: none
  std::string shared_gate;  // map [1, hidden], under a sigmoid; empty: none
};

// monostate: the block has none.
using FeedForwardSpec =
    std::variant<std::monostate, GatedMlpSpec, TwoLayerMlpSpec, MixtureOfExpertsSpec>;

// One block: x += mixer(norm(x)); then, if it has one, x += feed_forward(norm(x)).
struct LayerSpec {
  std::string mixer_type;  // its name for users: "hla", "gla", ...
  MixerConfig mixer;
  std::string mixer_prefix;  // of the tensors' names: "model.layers.0.attn."
  NormSpec mixer_norm;
  NormSpec feed_forward_norm;  // empty: no feed-forward (Mamba-2)
  FeedForwardSpec feed_forward;
};

struct ModelSpec {
  std::string architecture;  // model_type
  size_t vocab = 0;
  size_t hidden = 0;
  float norm_eps = 0;  // of the norms over the residual stream
  std::vector<LayerSpec> layers;
  std::string embeddings;             // tensor names
  std::string embeddings_older_name;  // of the same tensor in older files; empty: none
  NormSpec final_norm;
  std::string lm_head;  // equal to `embeddings` when tied
  // Tensors whose names start with one of these may be in the file and are not loaded.
  std::vector<std::string> ignored_tensors;
  std::vector<uint32_t> eos_ids;
  int64_t bos_id = -1;  // -1: none

  // Multipliers, each folded where 1 costs nothing: the embeddings' after the look-up, the logits'
  // into the final norm. One of the blocks' outputs: FoldResidualMultiplier (formats.h).
  float embedding_multiplier = 1;
  float logits_multiplier = 1;

  bool tied() const { return lm_head == embeddings; }
};

// `config` is the parsed config.json (model_loader/json.h). INVALID_ARGUMENT names the key.
absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MODEL_SPEC_H_
