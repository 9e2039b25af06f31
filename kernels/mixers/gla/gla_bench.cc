// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One GLA layer at decode (mixer_bench.h), and its recurrence alone: hidden/sessions/threads. Four
// heads with keys of hidden/8 and values of hidden/4, as fla's 340M (hidden 1024) and 1.3B (2048).
#include "kernels/mixers/gla/gla_config.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), keys = hidden / 2;
  const GlaConfig config{.heads = 4,
                         .kv_heads = 4,
                         .key_dim = hidden / 8,
                         .value_dim = hidden / 4,
                         .output = {.norm_name = "g_norm_swish_gate"}};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"q_proj.weight", {keys, hidden}},
                                     {"k_proj.weight", {keys, hidden}},
                                     {"v_proj.weight", {hidden, hidden}},
                                     {"g_proj.weight", {hidden, hidden}},
                                     {"gk_proj.0.weight", {16, hidden}},
                                     {"gk_proj.1.weight", {keys, 16}},
                                     {"gk_proj.1.bias", {keys}},
                                     {"g_norm_swish_gate.weight", {hidden / 4}},
                                     {"o_proj.weight", {hidden, hidden}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t hidden = state.range(0), count = state.range(1);
  StateLayout layout;
  const SumRecurrence recurrence(GlaDeclaration({4, 4, hidden / 8, hidden / 4, DType::kFloat32}),
                                 layout);
  BenchSessions sessions(layout, count);
  const BenchRows k(count, hidden / 2, -1.0, 1.0), v(count, hidden, -1.0, 1.0),
      log_decay(count, hidden / 2, -0.1, 0.0), out(count, hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {k.view, k.view, v.view, log_decay.view}, out.view);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{1024, 2048}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
