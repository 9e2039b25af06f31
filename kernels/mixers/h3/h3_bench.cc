// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One H3 layer at decode (mixer_bench.h), and its recurrence alone: hidden/sessions/threads. The
// hidden sizes are those of H3-125M and H3-1.3B, with their head_dim of 1.
#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/h3/h3_recurrence.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

constexpr size_t kStateSize = 64;

// The window's keys and taps, the modes read and written, their constants.
double StateBytes(size_t hidden) { return 6.0 * sizeof(float) * hidden * kStateSize; }

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), count = state.range(1), modes = kStateSize / 2;
  std::map<std::string, std::vector<size_t>> shapes{
      {"ssm_k_kernel.kernel.B", {hidden, kStateSize}},
      {"ssm_k_kernel.kernel.C", {1, hidden, kStateSize}},
      {"ssm_k_D", {hidden}},
      {"kernel.kernel.log_dt", {hidden}},
      {"kernel.kernel.B", {hidden, modes, 2}},
      {"kernel.kernel.C", {1, hidden, modes, 2}},
      {"kernel.kernel.inv_A_real", {hidden, modes}},
      {"kernel.kernel.A_imag", {hidden, modes}},
      {"D", {hidden}}};
  for (const std::string name : {"q_proj", "k_proj", "v_proj", "output_linear"}) {
    shapes[name + ".weight"] = {hidden, hidden};
    shapes[name + ".bias"] = {hidden};
  }
  size_t weight_bytes = 0;
  const H3Config config{.heads = hidden, .head_dim = 1, .state_size = kStateSize, .ssms = hidden};
  const auto mixer = MakeBenchLayer(state, config, hidden, shapes, &weight_bytes);
  if (mixer == nullptr) return;
  BenchSessions sessions(mixer->state_layout(), count);
  const BenchRows x(count, hidden, -1.0, 1.0), y(count, hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  const LayerStep step{sessions.segments, sessions.state(), &workspace, &pool};
  const double weights = static_cast<double>(weight_bytes) / static_cast<double>(count);
  BenchSteps(state, sessions, StateBytes(hidden) + weights, pool, [&] {
    if (!mixer->Forward(step, x.view, y.view).ok()) state.SkipWithError("Forward failed");
    workspace.Reset();
  });
}

void Recurrence(benchmark::State& state) {
  const size_t hidden = state.range(0), count = state.range(1), modes = kStateSize / 2;
  const auto numbers = [](size_t n, float value) {
    AlignedBuffer<float> buffer(n);
    std::fill_n(buffer.data(), n, value);
    return buffer;
  };
  const size_t all = hidden * modes;
  const H3Constants constants{numbers(hidden * kStateSize, 0.1f),
                              numbers(all, 0.7f),
                              numbers(all, 0.6f),
                              numbers(all, 0.1f),
                              numbers(all, -0.1f),
                              numbers(hidden, 0.5f)};
  StateLayout layout;
  const H3Recurrence recurrence({hidden, 1, kStateSize, modes}, constants, layout);
  BenchSessions sessions(layout, count);
  const BenchRows x(count, hidden, -1.0, 1.0), y(count, hidden, 0.0, 0.0);
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, StateBytes(hidden), pool, [&] {
    recurrence.Run(sessions.segments, sessions.state(), {x.view, x.view, x.view}, y.view, pool);
  });
}

void Arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"hidden", "sessions", "threads"})
      ->ArgsProduct({{768, 2048}, {1, 64}, {1, 2}})
      ->UseRealTime();
}
BENCHMARK(Decode)->Apply(Arguments);
BENCHMARK(Recurrence)->Apply(Arguments);

}  // namespace
}  // namespace rivulet
