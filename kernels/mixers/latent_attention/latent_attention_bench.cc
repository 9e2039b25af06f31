// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One layer of latent attention at decode (mixer_bench.h) in Kimi Linear's shape, at the start of
// its sessions: heads/sessions/threads. Time against context: bench/context_bench.
#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  const size_t heads = state.range(0), hidden = heads * 72;
  const LatentAttentionConfig config{.heads = heads,
                                     .latent = 512,
                                     .key_dim = 128,
                                     .shared_key = 64,
                                     .value_dim = 128,
                                     .scale = 0.07f};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"q_proj.weight", {heads * 192, hidden}},
                                     {"kv_a_proj_with_mqa.weight", {576, hidden}},
                                     {"kv_a_layernorm.weight", {512}},
                                     {"kv_b_proj.weight", {heads * 256, 512}},
                                     {"o_proj.weight", {hidden, heads * 128}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  weight_bytes += heads * 256 * 512 * sizeof(float);
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

BENCHMARK(Decode)
    ->ArgNames({"heads", "sessions", "threads"})
    ->ArgsProduct({{8, 32}, {1, 16}, {1, 2}})
    ->UseRealTime();

}  // namespace
}  // namespace rivulet
