// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One RWKV-6 layer at decode (mixer_bench.h), without its channel mixing, and its recurrence alone:
// heads/sessions/threads. Heads of 64; 32 of them and a width of 2048 are the 1.6B model's.
#include "kernels/mixers/mixer_bench.h"
#include "kernels/mixers/rwkv6/rwkv6_config.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kDim = 64;

void Decode(benchmark::State& state) {
  const size_t heads = state.range(0), hidden = heads * kDim;
  const Rwkv6Config config{.shape = {heads, heads, kDim, kDim}};
  const size_t ranks = 5 * config.mixture_rank;
  const std::map<std::string, std::vector<size_t>> shapes = {
      {"x_proj.0.mu", {hidden}},
      {"x_proj.0.linear.weight", {ranks, hidden}},
      {"x_proj.2.weight", {hidden, ranks}},
      {"x_bias", {5, hidden}},
      {"r_proj.linear.weight", {hidden, hidden}},
      {"k_proj.linear.weight", {hidden, hidden}},
      {"v_proj.linear.weight", {hidden, hidden}},
      {"g_proj.linear.weight", {hidden, hidden}},
      {"w_proj.linear.lora.0.weight", {config.decay_rank, hidden}},
      {"w_proj.linear.lora.2.weight", {hidden, config.decay_rank}},
      {"w_proj.linear.lora.2.bias", {hidden}},
      {"bonus", {heads, kDim}},
      {"g_norm.weight", {hidden}},
      {"g_norm.bias", {hidden}},
      {"o_proj.weight", {hidden, hidden}}};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden, shapes, &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t heads = state.range(0), count = state.range(1), columns = heads * kDim;
  StateLayout layout;
  const SumRecurrence recurrence(Rwkv6Declaration({heads, heads, kDim, kDim}), layout);
  BenchSessions sessions(layout, count);
  const BenchRows k(count, columns, -0.1, 0.1), log_decay(count, columns, -0.6, 0.0),
      out(count, columns, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run({sessions.segments, sessions.state(), &workspace, &pool},
                   {.q = k.view, .k = k.view, .v = k.view, .decay = log_decay.view}, out.view);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"heads", "sessions", "threads"})
      ->ArgsProduct({{12, 32}, {1, 16}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
