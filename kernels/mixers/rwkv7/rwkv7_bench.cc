// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One RWKV-7 layer at decode (mixer_bench.h), without its channel mixing, and its recurrence alone:
// heads/sessions/threads. Heads of 64; 32 of them and a width of 2048 are the 1.5B model's.
#include "kernels/mixers/mixer_bench.h"
#include "kernels/mixers/rwkv7/rwkv7_config.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kDim = 64;

void Decode(benchmark::State& state) {
  const size_t heads = state.range(0), hidden = heads * kDim;
  const Rwkv7Config config{.shape = {heads, heads, kDim, kDim},
                           .ranks = {.decay = 96, .rate = 96, .value = 64, .gate = 256}};
  std::map<std::string, std::vector<size_t>> shapes = {{"r_proj.weight", {hidden, hidden}},
                                                       {"k_proj.weight", {hidden, hidden}},
                                                       {"v_proj.weight", {hidden, hidden}},
                                                       {"o_proj.weight", {hidden, hidden}},
                                                       {"w_lora.lora.0.weight", {96, hidden}},
                                                       {"w_lora.lora.2.weight", {hidden, 96}},
                                                       {"w_lora.lora.2.bias", {hidden}},
                                                       {"a_lora.lora.0.weight", {96, hidden}},
                                                       {"a_lora.lora.2.weight", {hidden, 96}},
                                                       {"a_lora.lora.2.bias", {hidden}},
                                                       {"g_lora.lora.0.weight", {256, hidden}},
                                                       {"g_lora.lora.2.weight", {hidden, 256}},
                                                       {"k_k", {hidden}},
                                                       {"k_a", {hidden}},
                                                       {"r_k", {heads, kDim}},
                                                       {"g_norm.weight", {hidden}},
                                                       {"g_norm.bias", {hidden}}};
  for (const char* name : {"x_r", "x_w", "x_k", "x_v", "x_a", "x_g"}) {
    shapes[name] = {1, 1, hidden};
  }
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden, shapes, &weight_bytes);
  if (mixer == nullptr) return;
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t heads = state.range(0), count = state.range(1), columns = heads * kDim;
  StateLayout layout;
  const SumRecurrence recurrence(Rwkv7Declaration({heads, heads, kDim, kDim}), layout);
  BenchSessions sessions(layout, count);
  const BenchRows k(count, columns, -0.1, 0.1), log_decay(count, columns, -0.6, 0.0),
      out(count, columns, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, sessions.bytes_a_token(), pool, [&] {
    recurrence.Run(
        {sessions.segments, sessions.state(), &workspace, &pool},
        {.q = k.view, .k = k.view, .v = k.view, .decay = log_decay.view, .a = k.view, .b = k.view},
        out.view);
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
