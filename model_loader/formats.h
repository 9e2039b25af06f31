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

// More layers than any model has; bounds what a config can make us allocate.
inline constexpr size_t kMostLayers = 1024;

// What every format spells alike: sizes, eps of the norms, begin and end tokens. No layers and no
// tensor names but `architecture`.
absl::StatusOr<ModelSpec> ParseCommonFields(const nlohmann::json& config, double default_norm_eps);

// x += multiplier · f(norm(x)) in every block is x += f(norm(x)) for a residual stream in units of
// `multiplier`: embeddings and eps change, the forward pass does not. REQUIRES: multiplier > 0.
void FoldResidualMultiplier(double multiplier, ModelSpec& spec);

// fla_format.cc: gla, linear_attn and our hla, with mixtures of mixers by layer_types.
absl::StatusOr<ModelSpec> ParseFlaSpec(const nlohmann::json& config);

// mamba_format.cc: mamba, falcon_mamba and mamba2 as transformers, fla (mamba2) and the converted
// state-spaces files write them.
absl::StatusOr<ModelSpec> ParseMambaSpec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseFalconMambaSpec(const nlohmann::json& config);
absl::StatusOr<ModelSpec> ParseMamba2Spec(const nlohmann::json& config);

// h3_format.cc: h3 as model_loader/convert_h3.py writes it.
absl::StatusOr<ModelSpec> ParseH3Spec(const nlohmann::json& config);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_FORMATS_H_
