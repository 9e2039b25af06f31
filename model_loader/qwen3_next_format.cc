// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Qwen3-Next in transformers (docs/mixers.md#softmax-attention, #gated-deltanet): Gated DeltaNet
// (linear_attn) and gated softmax attention (self_attn) by layer_types or full_attention_interval;
// after either a mixture of experts with a shared one behind a gate, or a plain MLP. All norms over
// the residual stream, and those of q and k, have a weight of 1 + w. The heads that predict further
// tokens (mtp.*) are left out. Published files hold the experts' maps one by one, transformers 5
// all in one tensor.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/recurrence/recurrence.h"
#include "model_loader/formats.h"
#include "model_loader/hf_decoder.h"

namespace rivulet {
namespace {

using nlohmann::json;

constexpr const char* kLinear = "linear_attention";
constexpr const char* kFull = "full_attention";

absl::StatusOr<std::vector<std::string>> LayerTypes(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(std::vector<std::string> types,
                           HfLayerTypes(config, "layer_types", {kLinear, kFull}));
  if (!types.empty()) return types;
  RIVULET_ASSIGN_OR_RETURN(const size_t interval, SizeField(config, "full_attention_interval", 4));
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  for (size_t i = 0; i < layers; ++i) types.push_back((i + 1) % interval == 0 ? kFull : kLinear);
  return types;
}

absl::StatusOr<json> ParseAttention(const json& config, size_t hidden) {
  json with_defaults = config;
  if (!HasField(config, "head_dim")) with_defaults["head_dim"] = 256;
  RIVULET_ASSIGN_OR_RETURN(json attention, ParseHfAttention(with_defaults, hidden));
  attention["qk_norm"] = "rms_one_plus";
  attention["output_gate"] = true;
  constexpr const char* kPart = "partial_rotary_factor";
  const bool in_parameters =
      HasField(config, "rope_parameters") && HasField(config["rope_parameters"], kPart);
  if (!in_parameters && !HasField(config, kPart)) attention[kPart] = 0.25;
  return attention;
}

// The keys of kernels/mixers/gated_deltanet.
absl::StatusOr<json> ParseDeltaNet(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(const size_t keys, SizeField(config, "linear_num_key_heads", 16));
  RIVULET_ASSIGN_OR_RETURN(const size_t values, SizeField(config, "linear_num_value_heads", 32));
  if (values % keys != 0) {
    return FieldError(config, "linear_num_value_heads",
                      absl::StrCat("must be a multiple of linear_num_key_heads ", keys));
  }
  RIVULET_ASSIGN_OR_RETURN(const size_t key_dim,
                           SizeField(config, "linear_key_head_dim", 128, 1, kMaxKeyDim));
  RIVULET_ASSIGN_OR_RETURN(const size_t value_dim, SizeField(config, "linear_value_head_dim", 128));
  RIVULET_ASSIGN_OR_RETURN(const size_t width,
                           SizeField(config, "linear_conv_kernel_dim", 4, 2, kFoldInterval));
  RIVULET_ASSIGN_OR_RETURN(const double eps, HfNormEps(config));
  return json{{"num_heads", keys},   {"num_v_heads", values},
              {"head_dim", key_dim}, {"value_head_dim", value_dim},
              {"conv_size", width},  {"use_gate", true},
              {"norm_eps", eps},     {"tensor_layout", "qwen3_next"}};
}

// Which layers have experts, not a plain MLP.
absl::StatusOr<std::vector<bool>> SparseLayers(const json& config, size_t layers) {
  RIVULET_ASSIGN_OR_RETURN(const size_t experts,
                           SizeField(config, "num_experts", 512, 0, kMostExperts));
  RIVULET_ASSIGN_OR_RETURN(const size_t step, SizeField(config, "decoder_sparse_step", 1));
  std::vector<bool> sparse(layers);
  for (size_t i = 0; i < layers; ++i) sparse[i] = experts > 0 && (i + 1) % step == 0;
  RIVULET_ASSIGN_OR_RETURN(const std::vector<double> dense,
                           NumberListField(config, "mlp_only_layers"));
  for (const double layer : dense) {
    const auto index = static_cast<size_t>(std::clamp(layer, 0.0, double{kMostLayers}));
    if (static_cast<double>(index) != layer || index >= layers) {
      return FieldError(config, "mlp_only_layers",
                        absl::StrCat("its entries must be layers, from 0 to ", layers - 1));
    }
    sparse[index] = false;
  }
  return sparse;
}

absl::StatusOr<MixtureOfExpertsSpec> ParseExperts(const json& config) {
  MixtureOfExpertsSpec spec;
  RIVULET_ASSIGN_OR_RETURN(spec.experts, SizeField(config, "num_experts", 512, 1, kMostExperts));
  RIVULET_ASSIGN_OR_RETURN(spec.experts_per_token, HfExpertsPerToken(config, spec.experts, 10));
  RIVULET_ASSIGN_OR_RETURN(spec.intermediate, SizeField(config, "moe_intermediate_size", 512));
  RIVULET_ASSIGN_OR_RETURN(spec.weights_sum_to_one, BoolField(config, "norm_topk_prob", true));
  RIVULET_ASSIGN_OR_RETURN(spec.shared.intermediate,
                           SizeField(config, "shared_expert_intermediate_size", 512));
  return spec;
}

MixtureOfExpertsSpec NameExperts(size_t layer, MixtureOfExpertsSpec spec) {
  spec.router = {HfName(layer, "mlp.gate")};
  spec.gate_up = {HfName(layer, "mlp.experts.gate_up_proj")};
  spec.down = {HfName(layer, "mlp.experts.down_proj")};
  spec.expert_list = HfName(layer, "mlp.experts.");
  spec.shared = {spec.shared.intermediate, HfName(layer, "mlp.shared_expert.gate_proj"),
                 HfName(layer, "mlp.shared_expert.up_proj"),
                 HfName(layer, "mlp.shared_expert.down_proj")};
  spec.shared_gate = HfName(layer, "mlp.shared_expert_gate");
  return spec;
}

absl::Status SetMixers(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const std::vector<std::string> types, LayerTypes(config));
  RIVULET_ASSIGN_OR_RETURN(const json attention, ParseAttention(config, spec.hidden));
  RIVULET_ASSIGN_OR_RETURN(const json delta_net, ParseDeltaNet(config));
  for (size_t i = 0; i < types.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRmsOnePlus);
    if (types[i] == kFull) {
      SetHfAttention(i, attention, layer);
    } else {
      layer.mixer_type = "gated_deltanet";
      layer.mixer_prefix = HfName(i, "linear_attn.");
      layer.mixer_config = delta_net;
    }
    spec.layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

absl::Status SetFeedForwards(const json& config, ModelSpec& spec) {
  RIVULET_ASSIGN_OR_RETURN(const std::vector<bool> sparse,
                           SparseLayers(config, spec.layers.size()));
  RIVULET_ASSIGN_OR_RETURN(const size_t intermediate, SizeField(config, "intermediate_size", 5632));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!sparse[i]) {
      spec.layers[i].feed_forward = HfMlp(i, intermediate);
      continue;
    }
    RIVULET_ASSIGN_OR_RETURN(const MixtureOfExpertsSpec experts, ParseExperts(config));
    spec.layers[i].feed_forward = NameExperts(i, experts);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseQwen3NextSpec(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseHfDecoder(config));
  spec.final_norm.kind = NormSpec::Kind::kRmsOnePlus;
  spec.ignored_tensors = {"mtp."};
  RIVULET_RETURN_IF_ERROR(SetMixers(config, spec));
  RIVULET_RETURN_IF_ERROR(SetFeedForwards(config, spec));
  return spec;
}

}  // namespace rivulet
