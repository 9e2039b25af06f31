// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Llama in transformers (docs/mixers.md#softmax-attention), and Mistral, Qwen2 and Qwen3, which
// differ by biases, norms of q and k, and a sliding window. max_position_embeddings and
// pretraining_tp change nothing here.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "model_loader/formats.h"
#include "model_loader/hf_decoder.h"

namespace rivulet {
namespace {

using nlohmann::json;

// The key written out as null says that there is none; left out, it has a default.
bool WithoutWindow(const json& config) {
  return config.contains("sliding_window") && !HasField(config, "sliding_window");
}

// Mistral: in every layer.
absl::StatusOr<std::vector<size_t>> MistralWindows(const json& config, size_t layers) {
  if (WithoutWindow(config)) return std::vector<size_t>(layers, 0);
  RIVULET_ASSIGN_OR_RETURN(const size_t window, SizeField(config, "sliding_window", 4096));
  return std::vector<size_t>(layers, window);
}

// Qwen2 and Qwen3: in the layers that layer_types names, or else, with use_sliding_window, in those
// from max_window_layers on.
absl::StatusOr<std::vector<size_t>> QwenWindows(const json& config, size_t layers) {
  RIVULET_ASSIGN_OR_RETURN(
      const std::vector<std::string> types,
      HfLayerTypes(config, "layer_types", {"full_attention", "sliding_attention"}));
  RIVULET_ASSIGN_OR_RETURN(const bool uses, BoolField(config, "use_sliding_window", false));
  RIVULET_ASSIGN_OR_RETURN(const size_t first, SizeField(config, "max_window_layers", 28, 0));
  RIVULET_ASSIGN_OR_RETURN(const size_t window, SizeField(config, "sliding_window", 4096));
  const bool none = WithoutWindow(config);
  const auto named = std::find(types.begin(), types.end(), "sliding_attention");
  if (named != types.end() && (!uses || none)) {
    return FieldError(
        config, uses ? "sliding_window" : "use_sliding_window",
        absl::StrCat("it must be ", uses ? "a number of tokens" : "true",
                     ", since layer_types has sliding_attention at entry ", named - types.begin()));
  }
  std::vector<size_t> windows(layers, 0);
  for (size_t i = 0; i < layers; ++i) {
    const bool slides =
        types.empty() ? uses && !none && i >= first : types[i] == "sliding_attention";
    if (slides) windows[i] = window;
  }
  return windows;
}

// `attention` is that of a layer that sees everything; `windows` has 0 for such a layer.
absl::StatusOr<ModelSpec> ParseLlamaLike(const json& config, const json& attention, bool mlp_bias,
                                         const std::vector<size_t>& windows) {
  RIVULET_ASSIGN_OR_RETURN(ModelSpec spec, ParseHfDecoder(config));
  RIVULET_ASSIGN_OR_RETURN(const size_t intermediate,
                           SizeField(config, "intermediate_size", std::nullopt));
  for (size_t i = 0; i < windows.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    SetHfAttention(i, attention, layer);
    if (windows[i] > 0) layer.mixer_config["window_size"] = windows[i];
    GatedMlpSpec mlp = HfMlp(i, intermediate);
    mlp.bias = mlp_bias;
    layer.feed_forward = mlp;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

absl::StatusOr<json> ParseAttention(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(const size_t hidden, SizeField(config, "hidden_size", std::nullopt));
  return ParseHfAttention(config, hidden);
}

}  // namespace

absl::StatusOr<ModelSpec> ParseLlamaSpec(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(const json attention, ParseAttention(config));
  RIVULET_ASSIGN_OR_RETURN(const bool mlp_bias, BoolField(config, "mlp_bias", false));
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  return ParseLlamaLike(config, attention, mlp_bias, std::vector<size_t>(layers, 0));
}

absl::StatusOr<ModelSpec> ParseMistralSpec(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(json attention, ParseAttention(config));
  attention["qkv_bias"] = attention["output_bias"] = false;
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  RIVULET_ASSIGN_OR_RETURN(const std::vector<size_t> windows, MistralWindows(config, layers));
  return ParseLlamaLike(config, attention, false, windows);
}

absl::StatusOr<ModelSpec> ParseQwen2Spec(const json& config) {
  RIVULET_ASSIGN_OR_RETURN(json attention, ParseAttention(config));
  attention["qkv_bias"] = true;
  attention["output_bias"] = false;
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  RIVULET_ASSIGN_OR_RETURN(const std::vector<size_t> windows, QwenWindows(config, layers));
  return ParseLlamaLike(config, attention, false, windows);
}

absl::StatusOr<ModelSpec> ParseQwen3Spec(const json& config) {
  json with_head_dim = config;
  if (!HasField(config, "head_dim")) with_head_dim["head_dim"] = 128;
  RIVULET_ASSIGN_OR_RETURN(json attention, ParseAttention(with_head_dim));
  attention["qk_norm"] = "rms";
  RIVULET_ASSIGN_OR_RETURN(const size_t layers, HfLayers(config));
  RIVULET_ASSIGN_OR_RETURN(const std::vector<size_t> windows, QwenWindows(config, layers));
  return ParseLlamaLike(config, attention, false, windows);
}

}  // namespace rivulet
