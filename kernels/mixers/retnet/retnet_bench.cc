// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One RetNet layer at decode (mixer_bench.h), and its recurrence alone: hidden/sessions/threads.
// Heads with keys of 256 and values of 512, as fla's 1.3B (hidden 2048).
#include "kernels/mixers/mixer_bench.h"
#include "kernels/mixers/retnet/retnet_config.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kKey = 256, kValue = 512;

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0);
  const RetNetConfig config{.heads = hidden / kKey,
                            .kv_heads = hidden / kKey,
                            .key_dim = kKey,
                            .value_dim = kValue,
                            .output = {.norm_name = "g_norm_swish_gate"}};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"q_proj.weight", {hidden, hidden}},
                                     {"k_proj.weight", {hidden, hidden}},
                                     {"v_proj.weight", {2 * hidden, hidden}},
                                     {"g_proj.weight", {2 * hidden, hidden}},
                                     {"g_norm_swish_gate.weight", {kValue}},
                                     {"o_proj.weight", {hidden, 2 * hidden}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t hidden = state.range(0), count = state.range(1), heads = hidden / kKey;
  StateLayout layout;
  const SumRecurrence recurrence(RetNetDeclaration({heads, heads, kKey, kValue, DType::kFloat32}),
                                 layout);
  BenchSessions sessions(layout, count);
  const BenchRows k(count, hidden, -1.0, 1.0), v(count, 2 * hidden, -1.0, 1.0),
      out(count, 2 * hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {k.view, k.view, v.view}, out.view);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{1024, 2048}, {1, 16}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
