// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Llama in transformers (docs/mixers.md#softmax-attention), and Mistral, Qwen2 and Qwen3, which
// differ by biases, norms of q and k, and a sliding window. max_position_embeddings and
// pretraining_tp change nothing here.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "model_loader/formats.h"

namespace rivulet {
namespace {

// Tokens that a layer sees, by layer; 0: all.
using Windows = std::vector<size_t>;

// Mistral: in every layer. The key written out as null says that there is no window; left out, it
// has a default.
Windows MistralWindows(ConfigReader& config) {
  const size_t window = config.IsNull("sliding_window") ? 0 : config.Size("sliding_window", 4096);
  return Windows(ParseLayerCount(config), window);
}

// Qwen2 and Qwen3: in the layers that layer_types names, or else, with use_sliding_window, in those
// from max_window_layers on.
Windows QwenWindows(ConfigReader& config) {
  const std::vector<std::string> types =
      HfLayerTypes(config, "layer_types", {"full_attention", "sliding_attention"});
  const bool uses = config.Bool("use_sliding_window", false);
  const size_t first = config.Size("max_window_layers", 28, 0);
  const size_t window = config.Size("sliding_window", 4096);
  const bool none = config.IsNull("sliding_window");
  const auto named = std::find(types.begin(), types.end(), "sliding_attention");
  config.Require(
      named == types.end() || (uses && !none), uses ? "sliding_window" : "use_sliding_window",
      absl::StrCat("it must be ", uses ? "a number of tokens" : "true",
                   ", since layer_types has sliding_attention at entry ", named - types.begin()));
  Windows windows(ParseLayerCount(config), 0);
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool slides =
        types.empty() ? uses && !none && i >= first : types[i] == "sliding_attention";
    if (slides) windows[i] = window;
  }
  return windows;
}

// `attention` is that of a layer that sees everything.
ModelSpec ParseLlamaLike(ConfigReader& config, SoftmaxAttentionConfig attention, bool mlp_bias,
                         const Windows& windows) {
  ModelSpec spec = ParseHfDecoder(config);
  const size_t intermediate = config.Size("intermediate_size");
  for (size_t i = 0; i < windows.size(); ++i) {
    LayerSpec layer = HfLayer(i, NormSpec::Kind::kRms);
    attention.window = windows[i];
    SetHfAttention(i, attention, layer);
    GatedMlpSpec mlp = NameGatedMlp(HfName(i, "mlp."), intermediate);
    mlp.bias = mlp_bias;
    layer.feed_forward = mlp;
    spec.layers.push_back(std::move(layer));
  }
  return spec;
}

SoftmaxAttentionConfig ParseAttention(ConfigReader& config, const HfAttentionDefaults& defaults) {
  return ParseHfAttention(config, config.Size("hidden_size"), defaults);
}

}  // namespace

ModelSpec ParseLlamaSpec(ConfigReader& config) {
  const SoftmaxAttentionConfig attention = ParseAttention(config, {});
  const bool mlp_bias = config.Bool("mlp_bias", false);
  return ParseLlamaLike(config, attention, mlp_bias, Windows(ParseLayerCount(config), 0));
}

ModelSpec ParseMistralSpec(ConfigReader& config) {
  SoftmaxAttentionConfig attention = ParseAttention(config, {.kv_heads = 8});
  attention.qkv_bias = attention.output_bias = false;
  return ParseLlamaLike(config, attention, false, MistralWindows(config));
}

ModelSpec ParseQwen2Spec(ConfigReader& config) {
  SoftmaxAttentionConfig attention = ParseAttention(config, {.kv_heads = 32});
  attention.qkv_bias = true;
  attention.output_bias = false;
  return ParseLlamaLike(config, attention, false, QwenWindows(config));
}

ModelSpec ParseQwen3Spec(ConfigReader& config) {
  SoftmaxAttentionConfig attention = ParseAttention(config, {.head_dim = 128, .kv_heads = 32});
  attention.qk_norm = HeadNorm::kRms;
  return ParseLlamaLike(config, attention, false, QwenWindows(config));
}

}  // namespace rivulet
