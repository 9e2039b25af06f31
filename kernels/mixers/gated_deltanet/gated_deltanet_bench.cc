// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One layer of Gated DeltaNet at decode (mixer_bench.h), of Qwen3-Next's shape in its own tensors:
// 16 key heads and 32 value heads of 128 over a hidden of 2048; and the recurrence alone, of that
// shape and of fla's default (6 heads, keys of 256, values of 512): sessions/threads.
#include "kernels/mixers/delta_net/delta_rule/delta_rule_bench.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

constexpr HeadShape kQwen3Next{32, 16, 128, 128};
constexpr HeadShape kFla{6, 6, 256, 512};

void Decode(benchmark::State& state) {
  constexpr size_t kHidden = 2048, kKeys = 16 * 128, kValues = 32 * 128;
  const DeltaRuleConfig config{.shape = kQwen3Next,
                               .decays = true,
                               .tensors = DeltaRuleTensors::kQwen3Next,
                               .use_gate = true,
                               .conv_size = 4};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, kHidden,
                                    {{"in_proj_qkvz.weight", {2 * kKeys + 2 * kValues, kHidden}},
                                     {"in_proj_ba.weight", {64, kHidden}},
                                     {"conv1d.weight", {2 * kKeys + kValues, 1, 4}},
                                     {"A_log", {32}},
                                     {"dt_bias", {32}},
                                     {"norm.weight", {128}},
                                     {"out_proj.weight", {kHidden, kValues}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, kHidden, weight_bytes, state.range(0), state.range(1));
}

void RecurrenceQwen3Next(benchmark::State& state) {
  BenchDeltaRule(state, kQwen3Next, true, state.range(0), 1, state.range(1));
}
void RecurrenceFla(benchmark::State& state) {
  BenchDeltaRule(state, kFla, true, state.range(0), 1, state.range(1));
}
void PrefillQwen3Next(benchmark::State& state) {
  BenchDeltaRule(state, kQwen3Next, true, 1, 512, state.range(0));
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sessions", "threads"})->ArgsProduct({{1, 64}, {1, 2}})->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(RecurrenceQwen3Next)->Apply(Arguments);
BENCHMARK(RecurrenceFla)->Apply(Arguments);
BENCHMARK(PrefillQwen3Next)->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime();

}  // namespace
}  // namespace rivulet
