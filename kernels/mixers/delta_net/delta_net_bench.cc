// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One DeltaNet layer at decode (mixer_bench.h): hidden/sessions/threads; and its recurrence alone,
// a token a step and a prompt of 512. Heads of 128, as fla's 340M (hidden 1024) and 1.3B (2048).
#include "kernels/mixers/delta_net/delta_rule/delta_rule_bench.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), heads = hidden / 128;
  const DeltaRuleConfig config{
      .shape = {.heads = heads, .groups = heads, .key_dim = 128, .value_dim = 128}, .conv_size = 4};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"q_proj.weight", {hidden, hidden}},
                                     {"k_proj.weight", {hidden, hidden}},
                                     {"v_proj.weight", {hidden, hidden}},
                                     {"b_proj.weight", {heads, hidden}},
                                     {"q_conv1d.weight", {hidden, 1, 4}},
                                     {"k_conv1d.weight", {hidden, 1, 4}},
                                     {"v_conv1d.weight", {hidden, 1, 4}},
                                     {"o_norm.weight", {128}},
                                     {"o_proj.weight", {hidden, hidden}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t heads = state.range(0) / 128;
  BenchDeltaRule(state, {heads, heads, 128, 128}, false, state.range(1), 1, state.range(2));
}

void Prefill(benchmark::State& state) {
  BenchDeltaRule(state, {8, 8, 128, 128}, false, 1, 512, state.range(0));
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{1024, 2048}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);
BENCHMARK(Prefill)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rivulet
