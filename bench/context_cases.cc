// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "bench/context_cases.h"

#include <algorithm>
#include <bit>

#include "kernels/base/status.h"
#include "model_loader/mixers/parsers.h"
#include "nlohmann/json.hpp"

namespace rivulet {
namespace {

// Eight heads of 128 where a mixer has such heads, and what is usual for it at this width
// otherwise. Log-linear mixers have the shapes of the mixers that they extend, and levels enough
// for every context: then their pages are the bits of the context.
constexpr const char* kTable[][3] = {
    {"softmax_attention", "", R"("num_heads": 8, "num_kv_heads": 2, "head_dim": 128)"},
    {"softmax_attention", "window 4096",
     R"("num_heads": 8, "num_kv_heads": 2, "head_dim": 128, "window_size": 4096)"},
    {"linear_attn", "", R"("num_heads": 8, "feature_map": "elu")"},
    {"gla", "", R"("num_heads": 8, "expand_k": 1.0, "expand_v": 1.0)"},
    {"retnet", "", R"("num_heads": 8, "expand_k": 1.0, "expand_v": 1.0)"},
    {"delta_net", "", R"("num_heads": 8)"},
    {"gated_deltanet", "", R"("num_heads": 8, "head_dim": 128, "expand_v": 1.0)"},
    {"kda", "", R"("num_heads": 8, "head_dim": 128)"},
    {"rwkv6", "", R"("num_heads": 16, "expand_k": 1.0)"},
    {"rwkv7", "", R"("head_dim": 64)"},
    {"latent_attention", "", R"("num_heads": 8)"},
    {"rg_lru", "", R"("num_heads": 4)"},
    {"gated_convolution", "", ""},
    {"h_gated_deltanet", "",
     R"("num_heads": 8, "head_dim": 128, "expand_v": 1.0, "max_levels": 21)"},
    {"mamba2", "", R"("num_heads": 32, "head_dim": 64, "state_size": 128, "expand": 2)"},
    {"log_linear_mamba2", "",
     R"("num_heads": 32, "head_dim": 64, "state_size": 128, "expand": 2, "max_levels": 21)"},
    {"mamba", "", R"("state_size": 16, "expand": 2)"},
    {"h3", "", R"("d_state": 64)"},
    {"hla", "", R"("num_heads": 16, "head_dim": 64, "use_decay": true, "qk_norm": "l2")"},
    {"hla", "asymmetric",
     R"("num_heads": 16, "head_dim": 64, "use_decay": true, "qk_norm": "l2",
        "hla_variant": "asymmetric")"},
    {"hla", "third",
     R"("num_heads": 16, "head_dim": 64, "use_decay": true, "qk_norm": "l2",
        "hla_variant": "third")"},
    {"anna", "", R"("num_heads": 8, "num_hash_tables": 16, "num_hashes": 6)"},
};

// Steps of 0.001 to 0.1 after softplus, as Mamba initialises them.
constexpr RandomParameters::Range kTimeStep{-6.9f, -2.3f};

RandomParameters::Ranges DecayRanges() {
  return {{"A_log", {0.0f, 2.7f}},
          {"dt_bias", kTimeStep},
          {"dt_proj.bias", kTimeStep},
          {"kernel.kernel.log_dt", kTimeStep},
          {"rg_lru.recurrent_param", {-6.0f, -2.0f}},
          {"decay_logit", {3.0f, 7.0f}}};
}

ContextCase CaseOf(const std::string& type, const std::string& variant, const std::string& keys) {
  return {variant.empty() ? type : type + " (" + variant + ")", type, "{" + keys + "}"};
}

// Under this or another of its names.
bool Covered(const MixerParser& parser, const std::vector<ContextCase>& cases) {
  return std::any_of(cases.begin(), cases.end(), [&](const ContextCase& one) {
    const MixerParser* covered = FindMixerParser(one.type);
    return covered != nullptr && covered->parse == parser.parse;
  });
}

}  // namespace

std::vector<ContextCase> ContextCases() {
  std::vector<ContextCase> cases;
  for (const auto& [type, variant, keys] : kTable) cases.push_back(CaseOf(type, variant, keys));
  for (const MixerParser& parser : MixerParsers()) {
    if (Covered(parser, cases)) continue;
    cases.push_back(CaseOf(std::string(parser.type), "", R"("num_heads": 8)"));
  }
  return cases;
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeContextLayer(const ContextCase& one, uint64_t seed,
                                                        DType dtype, const MixerOptions& options,
                                                        size_t* weight_bytes) {
  RIVULET_ASSIGN_OR_RETURN(const MixerConfig config,
                           ParseMixer(one.type, nlohmann::json::parse(one.config), kContextHidden));
  RandomParameters parameters(seed, "", dtype, DecayRanges());
  RIVULET_ASSIGN_OR_RETURN(auto mixer, MakeMixer(config, {kContextHidden, parameters, options}));
  *weight_bytes = parameters.bytes();
  return mixer;
}

std::vector<ContextPlace> ContextPlaces(const PageKind& kind, uint64_t context) {
  const uint64_t chunks = context / kFoldInterval;
  if (!kind.fenwick()) return {{"", chunks * kFoldInterval}};
  const uint64_t fewest = std::bit_floor(chunks), most = fewest - 1;
  // 1010...1001: every other bit, but the lowest two.
  const uint64_t top = std::bit_floor(most);
  const uint64_t typical = (top | (top / 3 & ~uint64_t{3})) | 1;
  return {{"fewest", fewest * kFoldInterval},
          {"typical", typical * kFoldInterval},
          {"most", most * kFoldInterval}};
}

}  // namespace rivulet
