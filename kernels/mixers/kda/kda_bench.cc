// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One KDA layer at decode (mixer_bench.h), and its recurrence alone: heads/sessions/threads. Heads
// of 128; 32 of them and a width of 2304 are Kimi Linear's.
#include "kernels/mixers/kda/kda_config.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kDim = 128;

void Decode(benchmark::State& state) {
  const size_t heads = state.range(0), columns = heads * kDim, hidden = heads * 72;
  const KdaConfig config{.shape = {heads, heads, kDim, kDim}, .gate_rank = kDim, .conv_size = 4};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"q_proj.weight", {columns, hidden}},
                                     {"k_proj.weight", {columns, hidden}},
                                     {"v_proj.weight", {columns, hidden}},
                                     {"q_conv1d.weight", {columns, 1, 4}},
                                     {"k_conv1d.weight", {columns, 1, 4}},
                                     {"v_conv1d.weight", {columns, 1, 4}},
                                     {"b_proj.weight", {heads, hidden}},
                                     {"f_proj.0.weight", {kDim, hidden}},
                                     {"f_proj.1.weight", {columns, kDim}},
                                     {"g_proj.0.weight", {kDim, hidden}},
                                     {"g_proj.1.weight", {columns, kDim}},
                                     {"g_proj.1.bias", {columns}},
                                     {"A_log", {heads}},
                                     {"dt_bias", {columns}},
                                     {"o_norm.weight", {kDim}},
                                     {"o_proj.weight", {hidden, columns}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t heads = state.range(0), count = state.range(1), columns = heads * kDim;
  StateLayout layout;
  const SumRecurrence recurrence(KdaDeclaration({heads, heads, kDim, kDim, DType::kFloat32}),
                                 layout);
  BenchSessions sessions(layout, count);
  const BenchRows k(count, columns, -0.1, 0.1), log_decay(count, columns, -0.1, 0.0),
      beta(count, heads, 0.0, 1.0), out(count, columns, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {k.view, k.view, k.view, log_decay.view, beta.view}, out.view);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"heads", "sessions", "threads"})
      ->ArgsProduct({{8, 32}, {1, 16}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
