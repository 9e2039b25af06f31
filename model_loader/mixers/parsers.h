// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Each mixer's keys of config.json, read into its config (kernels/mixers/mixer_config.h): one
// function a mixer, in a file named after it, and the table of the names that checkpoints use.
// Errors go to the reader and name key, value and remedy; what is returned beside an error is not
// to be used. The keys are those of fla, or of the library that first published the mixer; the
// README of the mixer's folder lists them.
//
// Threading: pure functions.
#ifndef RIVULET_MODEL_LOADER_MIXERS_PARSERS_H_
#define RIVULET_MODEL_LOADER_MIXERS_PARSERS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/mixers/fla_output.h"
#include "kernels/mixers/mixer_config.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/ops/rope/rope.h"
#include "model_loader/config_reader.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// `hidden` is the width of the residual stream.
AnnaConfig ParseAnna(ConfigReader& config, size_t hidden);
DeltaRuleConfig ParseDeltaNet(ConfigReader& config, size_t hidden);
DeltaRuleConfig ParseGatedDeltaNet(ConfigReader& config, size_t hidden);
GatedConvolutionConfig ParseGatedConvolution(ConfigReader& config, size_t hidden);
GlaConfig ParseGla(ConfigReader& config, size_t hidden);
H3Config ParseH3(ConfigReader& config, size_t hidden);
HlaConfig ParseHla(ConfigReader& config, size_t hidden);
KdaConfig ParseKda(ConfigReader& config, size_t hidden);
LatentAttentionConfig ParseLatentAttention(ConfigReader& config, size_t hidden);
// The same without rotary positions: keys of the config about them are ignored.
struct LatentAttentionDefaults {
  size_t heads = 32;
  size_t key_dim = 128;
  size_t shared_key = 64;
  size_t value_dim = 128;
  size_t query_rank = 0;
};
LatentAttentionConfig ParseUnrotatedLatentAttention(ConfigReader& config,
                                                    const LatentAttentionDefaults& defaults = {});
LinearAttentionConfig ParseLinearAttention(ConfigReader& config, size_t hidden);
DeltaRuleConfig ParseLogLinearGatedDeltaNet(ConfigReader& config, size_t hidden);
Mamba2Config ParseLogLinearMamba2(ConfigReader& config, size_t hidden);
MambaConfig ParseMamba(ConfigReader& config, size_t hidden);
Mamba2Config ParseMamba2(ConfigReader& config, size_t hidden);
RetNetConfig ParseRetNet(ConfigReader& config, size_t hidden);
RgLruConfig ParseRgLru(ConfigReader& config, size_t hidden);
Rwkv6Config ParseRwkv6(ConfigReader& config, size_t hidden);
Rwkv7Config ParseRwkv7(ConfigReader& config, size_t hidden);
SoftmaxAttentionConfig ParseSoftmaxAttention(ConfigReader& config, size_t hidden);

struct RopeDefaults {
  size_t head_dim = 0;
  // Of a head that is rotated; none: all, without regard to partial_rotary_factor.
  std::optional<double> part = std::nullopt;
  // Whether partial_rotary_factor counts outside of rope_parameters (and rope_scaling) too.
  bool reads_outer_part = true;
  double theta = 10000.0;
};

// How a config.json writes rotary positions: transformers 4 (rope_theta, rope_scaling,
// partial_rotary_factor) and transformers 5 (all of it in rope_parameters). Without a type there is
// no scaling. Whether a layer rotates at all is for the caller to decide. Rope types other than
// default, linear, dynamic, llama3, yarn and longrope are refused by name, and so are parameters
// that differ by layer type.
RopeConfig ParseRope(ConfigReader& config, const RopeDefaults& defaults);

// Keys that fla's attention layers have in common (docs/mixers.md#linear-attention, #gla).
struct FlaHeads {
  size_t heads = 0;
  size_t kv_heads = 0;   // divides heads
  size_t key_dim = 0;    // of one head: hidden · expand_k / heads
  size_t value_dim = 0;  // of one head: hidden · expand_v / heads
};

struct FlaHeadDefaults {
  size_t heads = 4;
  double expand_k = 1.0;
  double expand_v = 1.0;
  bool any_key_width = false;  // else at most kMaxKeyDim
};

// num_heads, num_kv_heads (as many as num_heads by default), expand_k, expand_v.
FlaHeads ReadFlaHeads(ConfigReader& config, size_t hidden, const FlaHeadDefaults& defaults);

// head_dim of hla and anna: hidden / heads by default, at most kMaxKeyDim.
size_t ReadKeyDim(ConfigReader& config, size_t hidden, size_t heads);

// The most heads of hla, anna and latent_attention.
inline constexpr size_t kMostHeads = 1024;

// Mamba's rank of Δ's projection: a number, or "auto" for hidden / 16, rounded up.
size_t ReadMambaRank(ConfigReader& config, const char* key, size_t hidden);

// Mamba's inner width: int(expand · hidden). 0 after an error.
size_t ReadInner(ConfigReader& config, size_t hidden);

// use_output_gate, fuse_norm, hidden_act, elementwise_affine, norm_eps.
FlaOutput ReadFlaOutput(ConfigReader& config);

// feature_map of gla and retnet.
Activation ReadFlaFeatureMap(ConfigReader& config);

// conv_size, from 2 to kMaxConvolutionWindow.
size_t ReadConvSize(ConfigReader& config);

// Softmax attention's heads have a largest size.
void CheckAttentionHeadDim(ConfigReader& config, size_t head_dim);

// All heads of the delta rule side by side must be a sensible width for a projection.
void CheckDeltaRuleColumns(ConfigReader& config, std::string_view key, size_t heads, size_t width);

// time_step_limit: the bounds of Mamba-2's Δ.
void ReadMamba2Limit(ConfigReader& config, Mamba2Config& mamba2);

struct MixerParser {
  std::string_view type;  // the name in layer_types and model_type: "hla", "gla", ...
  MixerConfig (*parse)(ConfigReader& config, size_t hidden);
};

std::span<const MixerParser> MixerParsers();

// Null when no mixer has this name.
const MixerParser* FindMixerParser(std::string_view type);

// INVALID_ARGUMENT when the name is unknown, listing the known ones, or when a key is wrong.
absl::StatusOr<MixerConfig> ParseMixer(std::string_view type, const nlohmann::json& config,
                                       size_t hidden);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MIXERS_PARSERS_H_
