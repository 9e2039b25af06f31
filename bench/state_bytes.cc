// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// rivulet-state-bytes: what one layer keeps for one session, mixer by mixer, as the Markdown table
// of docs/performance.md. The numbers are those of the mixers' own StateLayouts. Each mixer stands
// in a layer 1024 wide; heads of 64, but for Mamba-2's state of 128.
#include <cstdio>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/base/status.h"
#include "nlohmann/json.hpp"
#include "server/engine/random_model.h"

namespace rivulet {
namespace {

struct Row {
  const char* name;
  const char* config;  // merged over kCommon
};

constexpr char kCommon[] = R"({"vocab_size": 32, "hidden_size": 1024, "num_hidden_layers": 1,
    "intermediate_size": 64, "num_heads": 16, "head_dim": 64, "norm_eps": 1e-5, "expand_k": 1.0,
    "expand_v": 1.0, "hidden_act": "swish", "tie_word_embeddings": true})";

constexpr Row kRows[] = {
    {"linear attention", R"({"model_type": "linear_attn", "feature_map": "elu"})"},
    {"GLA", R"({"model_type": "gla"})"},
    {"Mamba-2, state 128, expand 2",
     R"({"model_type": "mamba2", "state_size": 128, "expand": 2, "num_heads": 32, "n_groups": 1,
         "conv_kernel": 4, "use_conv_bias": true, "use_bias": false, "layer_norm_epsilon": 1e-5,
         "hidden_act": "silu", "time_step_limit": [0.0, 100.0]})"},
    {"HLA, masked (S, F)", R"({"model_type": "hla", "use_decay": true, "use_short_conv": true})"},
    {"HLA, masked, normalised",
     R"({"model_type": "hla", "use_decay": true, "use_short_conv": true, "normalize": true})"},
    {"HLA, serial (S, C, G)",
     R"({"model_type": "hla", "hla_form": "serial", "use_decay": true, "use_short_conv": true})"},
    {"HLA, unmasked (S, C)",
     R"({"model_type": "hla", "hla_form": "none", "use_decay": true, "use_short_conv": true})"},
    {"AHLA (P, E)",
     R"({"model_type": "hla", "hla_variant": "asymmetric", "use_decay": true, "use_short_conv": true})"},
};

// The bytes of softmax attention's keys and values for a token, bf16, as wide as the layer.
constexpr double kCacheBytesOfToken = 2.0 * 1024 * 2;

absl::StatusOr<StateLayout> LayoutOf(const Row& row, DType state) {
  nlohmann::json config = nlohmann::json::parse(kCommon);
  config.merge_patch(nlohmann::json::parse(row.config));
  LoadOptions options;
  options.mixer.state_dtype = state;
  RIVULET_ASSIGN_OR_RETURN(const auto model, MakeRandomModel(config, 1, options));
  return model->layers[0].mixer->state_layout();
}

void Print(const Row& row) {
  const absl::StatusOr<StateLayout> fp32 = LayoutOf(row, DType::kFloat32);
  if (!fp32.ok()) {
    std::printf("| %s | %s |\n", row.name, std::string(fp32.status().message()).c_str());
    return;
  }
  const absl::StatusOr<StateLayout> bf16 = LayoutOf(row, DType::kBFloat16);
  const double base = static_cast<double>(fp32->base_bytes());
  const double tail = static_cast<double>(fp32->tail_bytes());
  std::string planes;
  for (const StatePlane& plane : fp32->planes()) {
    planes += (planes.empty() ? "" : ", ") + plane.name;
  }
  const std::string half = bf16.ok() ? std::to_string(bf16->base_bytes()) : "refused";
  std::printf("| %s | %.0f | %s | %.0f | %.0f %% | %.0f | %s |\n", row.name, base, half.c_str(),
              tail, 100 * tail / base, (base + tail) / kCacheBytesOfToken, planes.c_str());
}

}  // namespace
}  // namespace rivulet

int main() {
  std::printf(
      "| mixer | base, fp32 | base, bf16 | tail | tail / base | tokens of a "
      "softmax cache | planes |\n|---|---|---|---|---|---|---|\n");
  for (const rivulet::Row& row : rivulet::kRows) rivulet::Print(row);
  return 0;
}
