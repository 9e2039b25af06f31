// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One Mamba-2 layer at decode (mixer_bench.h), and its recurrence alone: hidden/sessions/threads.
// The hidden sizes are those of mamba2-130m and mamba2-2.7b.
#include <vector>

#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), n = 128, p = 64, inner = 2 * hidden, heads = inner / p;
  const size_t channels = inner + 2 * n;
  const Mamba2Config config{
      .heads = heads, .head_dim = p, .state_size = n, .groups = 1, .norm_groups = 1};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"in_proj.weight", {inner + channels + heads, hidden}},
                                     {"conv1d.weight", {channels, 1, 4}},
                                     {"conv1d.bias", {channels}},
                                     {"dt_bias", {heads}},
                                     {"A_log", {heads}},
                                     {"D", {heads}},
                                     {"norm.weight", {inner}},
                                     {"out_proj.weight", {hidden, inner}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t p = 64, heads = 2 * state.range(0) / p, count = state.range(1);
  const Mamba2Constants constants{std::vector<float>(heads, -0.1f), std::vector<float>(heads * p)};
  StateLayout layout;
  const SumRecurrence recurrence(Mamba2Declaration({heads, 1, 128, p}, constants), layout);
  BenchSessions sessions(layout, count);
  const BenchRows x(count, heads * p, -1.0, 1.0), b(count, 128, -1.0, 1.0),
      delta(count, heads, 0.0, 1.0), y(count, heads * p, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {b.view, b.view, x.view, delta.view}, y.view);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{768, 2560}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
