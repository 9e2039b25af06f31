// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The public formats of checkpoints, a file each, listed in model_spec.cc. Threading: pure
// functions.
#ifndef RIVULET_MODEL_LOADER_FORMATS_H_
#define RIVULET_MODEL_LOADER_FORMATS_H_

#include "absl/status/statusor.h"
#include "model_loader/model_spec.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// More layers, and more experts in one of them, than any model has; they bound what a config can
// make us allocate.
inline constexpr size_t kMostLayers = 1024;
inline constexpr size_t kMostExperts = 4096;

// What every format spells alike: sizes, eps of the norms, begin and end tokens. No layers and no
// tensor names but `architecture`.
absl::StatusOr<ModelSpec> ParseCommonFields(const nlohmann::json& config, double default_norm_eps);

// x += multiplier · f(norm(x)) in every block is x += f(norm(x)) for a residual stream in units of
// `multiplier`: embeddings and eps change, the forward pass does not. REQUIRES: multiplier > 0.
void FoldResidualMultiplier(double multiplier, ModelSpec& spec);

// fla_format.cc: every mixer's name as a model type, fla's transformer, and mixtures of mixers.
absl::StatusOr<ModelSpec> ParseFlaSpec(const nlohmann::json& config);

// fla's width of a gated MLP: intermediate_size, or two thirds of hidden_ratio · hidden, rounded up
// to a multiple of 256.
absl::StatusOr<size_t> ParseFlaIntermediate(const nlohmann::json& config, size_t hidden);

// log_linear_mamba2_format.cc: log_linear_mamba2 (fla) and hattention (Guo et al.).
absl::StatusOr<ModelSpec> ParseLogLinearMamba2Spec(const nlohmann::json& config);

// mamba_format.cc: mamba, falcon_mamba and mamba2 as transformers, fla (mamba2) and the converted
// state-spaces files write them.
absl::StatusOr<ModelSpec> ParseMambaSpec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseFalconMambaSpec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseMamba2Spec(const nlohmann::json& config);

// h3_format.cc: h3 as model_loader/convert_h3.py writes it.
absl::StatusOr<ModelSpec> ParseH3Spec(const nlohmann::json& config);

// llama_format.cc: llama, mistral, qwen2 and qwen3 as transformers writes them.
absl::StatusOr<ModelSpec> ParseLlamaSpec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseMistralSpec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseQwen2Spec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseQwen3Spec(const nlohmann::json& config);

// qwen3_next_format.cc: qwen3_next as transformers writes it.
absl::StatusOr<ModelSpec> ParseQwen3NextSpec(const nlohmann::json& config);

// granite_format.cc: granitemoehybrid (Granite 4 H) as transformers writes it.
absl::StatusOr<ModelSpec> ParseGraniteSpec(const nlohmann::json& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FORMATS_H_
