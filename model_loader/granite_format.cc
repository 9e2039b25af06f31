// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Granite 4 (granitemoehybrid) in transformers: Mamba-2 (mamba) and softmax attention (self_attn)
// by layer_types; after either an MLP that all tokens share (shared_mlp), and with experts
// (block_sparse_moe) the sum of both. Embeddings, the blocks' outputs, scores and logits have
// multipliers of their own. Attention has rotary positions only where position_embedding_type says
// "rope".
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/hf_decoder.h"

namespace rivulet {
namespace {

using nlohmann::json;

// Older and newer names of the same two kinds.
bool IsMamba(const std::string& type) { return type == "mamba" || type == "linear_attention"; }

absl::StatusOr<std::vector<std::string>> LayerTypes(const json& config) {
  const char* key = HasField(config, "layer_types") ? "layer_types" : "layers_block_type";
  RIVULET_ASSIGN_OR_RETURN(
      std::vector<std::string> types,
      HfLayerTypes(config, key, {"mamba", "attention", "linear_attention", "full_attention"}));
  if (!types.empty()) return types;
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  return std::vector<std::string>(layers, "mamba");
}

absl::StatusOr<double> Multiplier(const json& config, const char* key) {
  RIVULET_ASSIGN_OR_RETURN(const double value, NumberField(config, key, 1.0));
  if (value > 0 && value <= 1e6 && value >= 1e-6) return value;
  return FieldError(config, key, "it must be from 1e-6 to 1e6");
}

absl::StatusOr<json> ParseAttention(const json& config, size_t hidden) {
  RIVULET_ASSIGN_OR_RETURN(json attention, ParseHfAttention(config, hidden));
  RIVULET_ASSIGN_OR_RETURN(attention["softmax_scale"], Multiplier(config, "attention_multiplier"));
  RIVULET_ASSIGN_OR_RETURN(
      const size_t rope, ChoiceField(config, "position_embedding_type", "nope", {"nope", "rope"}));
  if (rope == 1) return attention;
  for (const char* key : {"rope_scaling", "rope_parameters", "partial_rotary_factor"}) {
    attention.erase(key);
  }
  attention["rope_theta"] = nullptr;
  return attention;
}

// mamba_n_heads · mamba_d_head must be `inner`, the head size being absent or "auto" at times.
absl::StatusOr<size_t> MambaHeadDim(const json& config, size_t heads, size_t inner) {
  if (inner % heads != 0) {
    return FieldError(config, "mamba_n_heads",
                      absl::StrCat("must divide mamba_expand times hidden_size, ", inner));
  }
  const bool derived = !HasField(config, "mamba_d_head") || config["mamba_d_head"] == "auto";
  if (derived) return inner / heads;
  RIVULET_ASSIGN_OR_RETURN(const size_t dim, SizeField(config, "mamba_d_head", std::nullopt));
  if (heads * dim == inner) return dim;
  return FieldError(config, "mamba_d_head",
                    absl::StrCat("times mamba_n_heads ", heads, " it must be mamba_expand times ",
                                 "hidden_size, ", inner, "; or \"auto\""));
}

absl::Status ParseMambaHeads(const json& config, size_t hidden, json& mamba) {
  RIVULET_ASSIGN_OR_RETURN(const size_t heads, SizeField(config, "mamba_n_heads", 128));
  RIVULET_ASSIGN_OR_RETURN(const size_t expand, SizeField(config, "mamba_expand", 2, 1, 64));
  RIVULET_ASSIGN_OR_RETURN(const size_t groups, SizeField(config, "mamba_n_groups", 1));
  if (heads % groups != 0) {
    return FieldError(config, "mamba_n_groups",
                      absl::StrCat("must divide mamba_n_heads ", heads, " without remainder"));
  }
  RIVULET_ASSIGN_OR_RETURN(mamba["head_dim"], MambaHeadDim(config, heads, expand * hidden));
  mamba["num_heads"] = heads;
  mamba["n_groups"] = groups;
  mamba["expand"] = expand;
  return absl::OkStatus();
}

// The keys of kernels/mixers/mamba2.
absl::StatusOr<json> ParseMamba(const json& config, size_t hidden) {
  json mamba = {{"full_norm", true}};
  RIVULET_ASSIGN_OR_RETURN(mamba["norm_eps"], HfNormEps(config));
  RIVULET_RETURN_IF_ERROR(ParseMambaHeads(config, hidden, mamba));
  RIVULET_ASSIGN_OR_RETURN(mamba["state_size"],
                           SizeField(config, "mamba_d_state", 256, 1, kMaxKeyDim));
  RIVULET_ASSIGN_OR_RETURN(mamba["conv_kernel"],
                           SizeField(config, "mamba_d_conv", 4, 2, kFoldInterval));
  RIVULET_ASSIGN_OR_RETURN(mamba["use_conv_bias"], BoolField(config, "mamba_conv_bias", true));
  RIVULET_ASSIGN_OR_RETURN(mamba["use_bias"], BoolField(config, "mamba_proj_bias", false));
  if (HasField(config, "time_step_limit")) mamba["time_step_limit"] = config["time_step_limit"];
  return mamba;
}

// Gate and up in one map.
GatedMlpSpec SharedMlp(size_t layer, size_t intermediate) {
  return {intermediate, HfName(layer, "shared_mlp.input_linear"), "",
          HfName(layer, "shared_mlp.output_linear")};
}

// Sizes of the experts; none at all where `experts` is 0.
absl::StatusOr<MixtureOfExpertsSpec> ParseExperts(const json& config) {
  MixtureOfExpertsSpec spec;
  RIVULET_ASSIGN_OR_RETURN(spec.experts,
                           SizeField(config, "num_local_experts", 8, 0, kMostExperts));
  if (spec.experts == 0) return spec;
  RIVULET_ASSIGN_OR_RETURN(spec.experts_per_token, HfExpertsPerToken(config, spec.experts, 2));
  RIVULET_ASSIGN_OR_RETURN(spec.intermediate, SizeField(config, "intermediate_size", std::nullopt));
  return spec;
}

// transformers 5 renamed the experts' tensors, though it still writes the first names.
FeedForwardSpec NameFeedForward(size_t layer, MixtureOfExpertsSpec spec, size_t shared) {
  if (spec.experts == 0) return SharedMlp(layer, shared);
  spec.router = {HfName(layer, "block_sparse_moe.router.layer"),
                 HfName(layer, "block_sparse_moe.router")};
  spec.gate_up = {HfName(layer, "block_sparse_moe.input_linear.weight"),
                  HfName(layer, "block_sparse_moe.experts.gate_up_proj")};
  spec.down = {HfName(layer, "block_sparse_moe.output_linear.weight"),
               HfName(layer, "block_sparse_moe.experts.down_proj")};
  spec.shared = SharedMlp(layer, shared);
  return spec;
}

absl::Status AddLayers(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const std::vector<std::string> types, LayerTypes(config));
  RIVULET_ASSIGN_OR_RETURN(const json attention, ParseAttention(config, spec.hidden));
  RIVULET_ASSIGN_OR_RETURN(const json mamba, ParseMamba(config, spec.hidden));
  RIVULET_ASSIGN_OR_RETURN(const MixtureOfExpertsSpec experts, ParseExperts(config));
  RIVULET_ASSIGN_OR_RETURN(const size_t shared,
                           SizeField(config, "shared_intermediate_size", 1024));
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    if (IsMamba(types[i])) {
      layer.mixer_type = "mamba2";
      layer.mixer_prefix = HfName(i, "mamba.");
      layer.mixer_config = mamba;
    } else {
      SetHfAttention(i, attention, layer);
    }
    layer.feed_forward = NameFeedForward(i, experts, shared);
    spec.layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

absl::Status SetMultipliers(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const double embedding, Multiplier(config, "embedding_multiplier"));
  RIVULET_ASSIGN_OR_RETURN(const double scaling, Multiplier(config, "logits_scaling"));
  RIVULET_ASSIGN_OR_RETURN(const double residual, Multiplier(config, "residual_multiplier"));
  spec.embedding_multiplier = static_cast<float>(embedding);
  spec.logits_multiplier = static_cast<float>(1 / scaling);
  FoldResidualMultiplier(residual, spec);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseGraniteSpec(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseHfDecoder(config));
  RIVULET_RETURN_IF_ERROR(
      ChoiceField(config, "normalization_function", "rmsnorm", {"rmsnorm"}).status());
  RIVULET_RETURN_IF_ERROR(AddLayers(config, spec));
  RIVULET_RETURN_IF_ERROR(SetMultipliers(config, spec));
  return spec;
}

}  // namespace rivulet
