// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One RG-LRU layer at decode (mixer_bench.h), and its recurrence alone: hidden/sessions/threads.
// The hidden sizes are those of RecurrentGemma-2B and 9B.
#include "kernels/mixers/mixer_bench.h"
#include "kernels/mixers/rg_lru/rg_lru_config.h"
#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"

namespace rivulet {
namespace {

constexpr size_t kSide = 256;  // of the gates' blocks

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), blocks = hidden / kSide;
  std::map<std::string, std::vector<size_t>> shapes{{"conv_1d.weight", {hidden, 1, 4}},
                                                    {"conv_1d.bias", {hidden}},
                                                    {"rg_lru.recurrent_param", {hidden}}};
  for (const std::string name : {"linear_x", "linear_y", "linear_out"}) {
    shapes[name + ".weight"] = {hidden, hidden};
    shapes[name + ".bias"] = {hidden};
  }
  for (const std::string name : {"rg_lru.input_gate", "rg_lru.recurrent_gate"}) {
    shapes[name + "_weight"] = {blocks, kSide, kSide};
    shapes[name + "_bias"] = {blocks, kSide};
  }
  size_t weight_bytes = 0;
  const auto mixer =
      MakeBenchLayer(state, RgLruConfig{hidden, blocks}, hidden, shapes, &weight_bytes);
  if (mixer == nullptr) return;
  weight_bytes += 2 * hidden * kSide * sizeof(float);
  BenchDecode(state, *mixer, hidden, weight_bytes, state.range(1), state.range(2));
}

void Recurrence(benchmark::State& state) {
  const size_t hidden = state.range(0), count = state.range(1);
  AlignedBuffer<float> rate(hidden);
  for (size_t i = 0; i < hidden; ++i) rate[i] = -0.1f;
  StateLayout layout;
  const RgLruRecurrence recurrence(rate, layout);
  BenchSessions sessions(layout, count);
  const BenchRows x(count, hidden, -1.0, 1.0), h(count, hidden, 0.0, 0.0);
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, 2.0 * sizeof(float) * static_cast<double>(hidden), pool, [&] {
    recurrence.Run(sessions.segments, sessions.state(), {x.view, x.view, x.view}, h.view, pool);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{2560, 4096}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
