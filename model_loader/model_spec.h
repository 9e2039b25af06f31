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
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/activation_kind.h"
#include "kernels/mixers/mixer_config.h"
#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "kernels/ops/hyper_connection/gated_connection.h"
#include "kernels/ops/hyper_connection/sinkhorn_connection.h"
#include "kernels/ops/mixture_of_experts/expert_choice.h"
#include "kernels/ops/ngram_embedding/ngram_embedding.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// A norm over the residual stream, with the names of its tensors [hidden].
struct NormSpec {
  enum class Kind : uint8_t {
    kRms,
    kRmsOnePlus,  // RMSNorm whose tensor holds w for a weight of 1 + w
    kLayer,       // LayerNorm
  };
  std::string weight;
  std::string bias = {};  // of kLayer; empty: it has none
  Kind kind = Kind::kRms;
  std::string other_weight = {};  // what other files call it; empty: nothing else

  bool empty() const { return weight.empty(); }
};

// In the feed-forward specs a map is named without ".weight" ("model.layers.0.mlp.down_proj"); with
// a bias it has a tensor ".bias" too.

// down(f(gate x) · up x), with multipliers of gate x and of the whole.
struct GatedMlpSpec {
  size_t intermediate = 0;
  std::string gate;  // [intermediate, hidden]; of both, gate rows first, where the file has no `up`
  std::string up;    // empty: `gate` is of both
  std::string down;
  bool bias = false;  // of all three
  GatedMlpForm form = {};
  // Where the file has no `gate`: NameGatedMlp's names below this prefix. Empty: it must have it.
  std::string other_prefix = {};
};

// second(f(first x))
struct TwoLayerMlpSpec {
  size_t intermediate = 0;
  std::string first;
  std::string second;
  bool bias = true;  // of both
  Activation f = Activation::kGeluTanh;
};

// What an expert's maps are called where each expert has tensors of its own.
struct ExpertNames {
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";
};

// The weighted sum of the MLPs that a router chooses for a token, and of one that all tokens share
// (kernels/ops/mixture_of_experts). Libraries have renamed tensors: of a list of names, the first
// that the file has is used.
struct MixtureOfExpertsSpec {
  ExpertChoice choice = {};
  size_t intermediate = 0;           // of one expert
  bool gated = true;                 // else an expert is down(f(up x))
  Activation f = Activation::kSilu;  // of the experts
  float limit = 0;                   // of gated ones: GatedMlpForm::limit
  std::vector<std::string> router;   // maps [experts, hidden]
  std::string correction;            // tensor [experts], added to the scores; empty: none
  // Whole tensors of all experts: [experts, 2 · intermediate, hidden], gate rows first, or
  // [experts, intermediate, hidden] of experts that are not gated; and
  // [experts, hidden, intermediate].
  std::vector<std::string> gate_up;
  std::vector<std::string> down;
  // Where the file has none of those: <expert_list>{e}.<expert_names>. Empty: it must have them.
  std::string expert_list;
  ExpertNames expert_names = {};
  // Of all tokens.
  std::variant<std::monostate, GatedMlpSpec, TwoLayerMlpSpec> shared;
  std::string shared_gate;  // map [1, hidden], under a sigmoid; empty: none
  // The experts' width in place of `hidden`, and the maps to it and back; 0: none.
  size_t latent = 0;
  std::string latent_down, latent_up;
  bool latent_bias = false;
};

// RWKV's: value(f(key x')), x' the mixture of x and the input before it
// (kernels/ops/channel_mixing).
struct ChannelMixingSpec {
  size_t intermediate = 0;
  std::string mix;         // tensor [hidden]
  std::string key, value;  // maps [intermediate, hidden] and [hidden, intermediate]
  // RWKV-6's gate: tensor [hidden] and map [hidden, hidden]. Empty: none.
  std::string gate_mix, receptance;
  Activation f = Activation::kReluSquared;
};

// monostate: the block has none.
using FeedForwardSpec = std::variant<std::monostate, GatedMlpSpec, TwoLayerMlpSpec,
                                     MixtureOfExpertsSpec, ChannelMixingSpec>;

// A residual over several streams (kernels/ops/hyper_connection) with the names of its tensors.
struct SinkhornConnectionSpec {
  SinkhornForm form = {};
  std::string map;     // [weights, streams · hidden]
  std::string biases;  // [weights]
  std::string scales;  // [3]
};
struct GatedConnectionSpec {
  GatedForm form = {};
  std::string norm;  // [streams · hidden], w for a weight of 1 + w
  std::string down;  // [rank, streams · hidden]
  std::string up;    // [streams · hidden, rank]
  std::string out;   // [streams, streams · hidden]; of one that expands
};
// monostate: one stream.
using HyperConnectionSpec =
    std::variant<std::monostate, SinkhornConnectionSpec, GatedConnectionSpec>;
inline bool HasStreams(const HyperConnectionSpec& spec) {
  return !std::holds_alternative<std::monostate>(spec);
}

// What happens around a mixer or a feed-forward f beside x += f(norm(x)):
//   x = keep · x + add · output_norm(f(x'))     x' = norm(x), or x itself without a norm
// and first x = norm(x), if `keeps_normed`. With a connection nothing of that: f reads the norm of
// what the connection makes of the streams.
struct ResidualSpec {
  NormSpec output_norm = {};  // OLMo; empty: none
  bool keeps_normed = false;  // MiniMax
  float keep = 1;
  float add = 1;
  HyperConnectionSpec connection = {};

  bool plain() const {
    return output_norm.empty() && !keeps_normed && keep == 1 && add == 1 && !HasStreams(connection);
  }
};

// A mixer that reads what the layer's first mixer reads; the outputs add up:
//   output · mixer(input · x)
struct BesideSpec {
  std::string mixer_type;
  MixerConfig mixer;
  std::string mixer_prefix;
  float input = 1;
  float output = 1;
};

// Embeddings of n-grams in front of a layer (kernels/ops/ngram_embedding), with what begins the
// names of its tensors ("model.layers.0.ple.").
struct NgramSpec {
  NgramForm form = {};
  std::string prefix;
};

// One block: x += mixer(norm(x)); then, if it has one, x += feed_forward(norm(x)).
struct LayerSpec {
  std::string mixer_type;  // its name for users: "hla", "gla", ...; empty: the layer has no mixer
  MixerConfig mixer;
  std::string mixer_prefix;              // of the tensors' names: "model.layers.0.attn."
  std::optional<NgramSpec> ngrams = {};  // added to the streams first
  NormSpec mixer_norm;                   // empty: none
  ResidualSpec mixer_residual = {};
  // Side by side with the mixer (Falcon-H1), with what the mixer's own input and output are
  // multiplied by.
  std::vector<BesideSpec> beside = {};
  float mixer_input = 1;
  float mixer_output = 1;
  bool reads_embeddings = false;  // the mixer reads x | the tokens' embeddings (Zamba2)
  NormSpec feed_forward_norm;     // empty: none
  FeedForwardSpec feed_forward;   // monostate: none (Mamba-2)
  ResidualSpec feed_forward_residual = {};

  bool has_mixer() const { return !mixer_type.empty(); }
  bool has_feed_forward() const { return !std::holds_alternative<std::monostate>(feed_forward); }
};

// A head that predicts the token after the next one (mtp.*), from the stream h behind the model's
// final norm and the embedding e of the next token:
//   x = fusion(embedding_norm(e) | hidden_norm(h))   layers   logits = output map(final_norm(x))
// with the model's embeddings and output map. Its place t + 1 is that of e; place 0, before which
// there is no h, is not seen by any other.
struct PredictorSpec {
  NormSpec embedding_norm;
  NormSpec hidden_norm;
  std::string fusion;  // tensor [hidden, 2 · hidden]
  std::vector<LayerSpec> layers;
  NormSpec final_norm;
};

// A part of a file that is recognised and not loaded: the tensors whose names start with `prefix`.
struct IgnoredPart {
  std::string prefix;
  std::string what = {};  // for the log: "the vision encoder"; empty: not worth a line
};

struct ModelSpec {
  std::string architecture;  // model_type
  size_t vocab = 0;
  size_t hidden = 0;
  // Residual streams, each `hidden` wide. Above 1 every block of the model has a connection.
  size_t streams = 1;
  float norm_eps = 0;  // of the norms over the residual stream
  std::vector<LayerSpec> layers;
  // How files may begin the names that begin with "model." here, beside that:
  // "model.language_model."
  std::vector<std::string> other_roots = {};
  std::string embeddings;             // tensor names
  std::string embeddings_older_name;  // of the same tensor in older files; empty: none
  NormSpec embedding_norm;            // of the embeddings, before the first layer; empty: none
  NormSpec final_norm;                // empty: none
  // Makes one of the streams after the last layer; none: that is their mean.
  HyperConnectionSpec last_connection = {};
  std::string lm_head;  // equal to `embeddings` when tied
  std::vector<IgnoredPart> ignored;
  std::optional<PredictorSpec> predictor = {};  // loaded on request (LoadOptions)
  std::vector<uint32_t> eos_ids;
  int64_t bos_id = -1;  // -1: none

  // Multipliers, each folded where 1 costs nothing: the embeddings' after the look-up, the logits'
  // into the final norm. One of the blocks' outputs: FoldResidualMultiplier (formats.h).
  float embedding_multiplier = 1;
  float logits_multiplier = 1;
  float logits_cap = 0;  // logits become cap · tanh(logit / cap), on the CPU; 0: they stay

  bool tied() const { return lm_head == embeddings; }
};

// `config` is the parsed config.json (model_loader/json.h). INVALID_ARGUMENT names the key.
absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MODEL_SPEC_H_
