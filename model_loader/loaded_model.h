// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A checkpoint directory, loaded: weights packed for this machine, one mixer per layer, the
// tokenizer, and the defaults of generation_config.json. Immutable and shared by all.
//
// It does not run anything: server/engine does. Threading: const after Load.
#ifndef RIVULET_MODEL_LOADER_LOADED_MODEL_H_
#define RIVULET_MODEL_LOADER_LOADED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/dtype.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/hyper_connection/hyper_connection.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/norm/trained_norm.h"
#include "model_loader/chat_template.h"
#include "model_loader/model_spec.h"
#include "model_loader/tokenizer.h"

namespace rivulet {

struct LoadOptions {
  // None = "auto": as in the file. kFloat8: of the layers, on a device; the output map is bf16
  // then.
  std::optional<DType> weight_dtype;
  MixerOptions mixer;
  size_t threads = 1;  // that read and pack
  // Where packed weights are kept from one start to the next (packed_cache.h); empty: nowhere. Not
  // used for a device. What goes wrong with it costs time only.
  std::string packed_cache;
  // A JSON object whose keys replace those of config.json; empty: none.
  std::string config_override;
  // Loads the head that predicts the token after the next (PredictorSpec). Its weights count.
  bool predictor = false;
  // Called as the load proceeds with the share done in [0, 1] and what is being done.
  std::function<void(double, const std::string&)> progress;
};

// generation_config.json: what a request that leaves a field unset gets. Unset here too: the API's
// stated default.
struct GenerationDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint32_t> top_k, max_tokens;
};

// What became of LoadOptions::packed_cache, for the log.
struct PackedCacheUse {
  std::string path;  // of the file; empty: there is no cache
  bool read = false;
  bool written = false;
  uint64_t bytes = 0;   // of the file that was read
  double seconds = 0;   // that reading or writing took
  absl::Status unused;  // why a file that is there was not used
  absl::Status failed;  // why none could be written
};

// ResidualSpec, loaded.
struct LoadedResidual {
  TrainedNorm output_norm = {};  // empty: none
  bool keeps_normed = false;
  float keep = 1;
  float add = 1;
  std::unique_ptr<HyperConnection> connection = nullptr;  // null: one stream
};

// One block: x += mixer(norm(x)); then, if it has one, x += feed_forward(norm(x)).
struct LoadedLayer {
  std::string mixer_type;
  TrainedNorm mixer_norm;                  // empty: none
  std::unique_ptr<Mixer> mixer;            // null: none
  std::unique_ptr<NgramEmbedding> ngrams;  // null: none
  bool reads_embeddings = false;           // the mixer reads x | the tokens' embeddings
  LoadedResidual mixer_residual;
  TrainedNorm feed_forward_norm;              // empty: none
  std::unique_ptr<FeedForward> feed_forward;  // null: none
  LoadedResidual feed_forward_residual;
  // The mixer's planes, those of n-grams, and the feed-forward's behind them.
  StateLayout state_layout;
  PartOffsets ngram_state;         // where those of n-grams begin
  PartOffsets feed_forward_state;  // where the latter begin
};

// PredictorSpec, loaded. LanguageModel runs it.
struct LoadedPredictor {
  TrainedNorm embedding_norm;
  TrainedNorm hidden_norm;
  Linear fusion;  // [hidden, 2 · hidden]
  std::vector<LoadedLayer> layers;
  TrainedNorm final_norm;
};

struct LoadedModel {
  std::string name;    // ModelFolder's
  std::string commit;  // of a snapshot of the hub's cache; empty: none
  // The same for the same files and config: a hash of their names, sizes, times and headers. For
  // models on a device; else empty.
  std::string files_key;
  ModelSpec spec;
  DType weight_dtype = DType::kFloat32;  // of the packed maps; fp8: but for the output map
  DType state_dtype = DType::kFloat32;
  uint64_t parameters = 0;  // trained numbers, tied ones once
  // Tied embeddings are in the panels of lm_head, if these hold the same numbers, or else rows.
  EmbeddingTable embeddings;
  std::shared_ptr<const void> embedding_rows;  // keeps the rows in memory
  TrainedNorm embedding_norm;                  // empty: none
  std::vector<LoadedLayer> layers;
  std::unique_ptr<HyperConnection> last_connection;  // null: the streams' mean
  TrainedNorm final_norm;                            // empty: none
  Linear lm_head;                                    // [vocab, hidden]
  std::unique_ptr<LoadedPredictor> predictor;        // null: LoadOptions did not ask for it
  GenerationDefaults defaults;
  std::unique_ptr<Tokenizer> tokenizer;         // null: token ids only
  std::unique_ptr<ChatTemplate> chat_template;  // null: the checkpoint has none
  // For the log: parts of the files that were recognised and not loaded.
  std::vector<std::string> left_out;
  // Keys of LoadOptions::config_override that config.json does not have: some are meant
  // (norm_groups), others are misspelt, and nothing reads those.
  std::vector<std::string> added_keys;
  PackedCacheUse packed_cache;
  uint64_t checkpoint_bytes = 0;  // of its files' tensors
  double load_seconds = 0;        // that LoadModel took

  LoadedModel();
  ~LoadedModel();

  // The most tokens that a session may hold: the least of what the mixers say. UINT64_MAX: any
  // number.
  uint64_t max_tokens() const;
  // The most columns that a mixer has (Mixer::handed_on_columns).
  size_t handed_on_columns() const;
};

// The norm that `spec` describes, times `multiplier`. The source records problems.
TrainedNorm TakeNorm(const NormSpec& spec, size_t hidden, float eps, ParameterSource& parameters,
                     float multiplier = 1);

// Null for one stream.
std::unique_ptr<HyperConnection> TakeConnection(const HyperConnectionSpec& spec, size_t hidden,
                                                ParameterSource& parameters);

// Embeddings of n-grams with the state of `empty`'s device. `parameters` records problems.
std::unique_ptr<NgramEmbedding> TakeNgrams(const NgramSpec& spec, size_t hidden,
                                           const StateLayout& empty, ParameterSource& parameters);

// A layer's feed-forward block. `parameters` knows the tensors by the spec's names and records
// problems. Null for a block without one.
std::unique_ptr<FeedForward> TakeFeedForward(const FeedForwardSpec& spec, size_t hidden,
                                             const MixerOptions& options,
                                             ParameterSource& parameters);

// Every problem with the tensors (missing, extra, wrong shape with the one expected, NaN) is named
// in one error, at most 20 of them followed by a count. Nothing is left behind after a failure.
// `path`: what FindModelFolder (model_folder.h) takes.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const std::string& path,
                                                       const LoadOptions& options);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_LOADED_MODEL_H_
