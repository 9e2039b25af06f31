// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// One Mamba layer at decode (mixer_bench.h), and its recurrence alone: hidden/sessions/threads. The
// hidden sizes are those of mamba-130m and mamba-2.8b.
#include "kernels/mixers/mamba/mamba_config.h"
#include "kernels/mixers/mamba/mamba_recurrence.h"
#include "kernels/mixers/mixer_bench.h"

namespace rivulet {
namespace {

constexpr size_t kStateSize = 16;

// h is read and written every token; A is read once a step for each session.
double StateBytes(size_t inner) { return 3.0 * sizeof(float) * inner * kStateSize; }

void Decode(benchmark::State& state) {
  const size_t hidden = state.range(0), inner = 2 * hidden, rank = hidden / 16;
  const size_t count = state.range(1);
  const MambaConfig config{.inner = inner, .state_size = kStateSize, .rank = rank};
  size_t weight_bytes = 0;
  const auto mixer = MakeBenchLayer(state, config, hidden,
                                    {{"in_proj.weight", {2 * inner, hidden}},
                                     {"conv1d.weight", {inner, 1, 4}},
                                     {"conv1d.bias", {inner}},
                                     {"x_proj.weight", {rank + 2 * kStateSize, inner}},
                                     {"dt_proj.weight", {inner, rank}},
                                     {"dt_proj.bias", {inner}},
                                     {"A_log", {inner, kStateSize}},
                                     {"D", {inner}},
                                     {"out_proj.weight", {hidden, inner}}},
                                    &weight_bytes);
  if (mixer == nullptr) return;
  BenchSessions sessions(mixer->state_layout(), count);
  const BenchRows x(count, hidden, -1.0, 1.0), y(count, hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(state.range(2));
  const LayerStep step{sessions.segments, sessions.state(), &workspace, &pool};
  const double weights = static_cast<double>(weight_bytes) / static_cast<double>(count);
  BenchSteps(state, sessions, StateBytes(inner) + weights, pool, [&] {
    if (!mixer->Forward(step, x.view, y.view).ok()) state.SkipWithError("Forward failed");
    workspace.Reset();
  });
}

void Recurrence(benchmark::State& state) {
  const size_t inner = 2 * state.range(0), count = state.range(1);
  MambaConstants constants{AlignedBuffer<float>(inner * kStateSize), AlignedBuffer<float>(inner)};
  for (size_t i = 0; i < constants.a.size(); ++i) constants.a[i] = -0.1f * (i % kStateSize + 1);
  StateLayout layout;
  const MambaRecurrence recurrence({inner, kStateSize}, constants, layout);
  BenchSessions sessions(layout, count);
  const BenchRows x(count, inner, -1.0, 1.0), dt(count, inner, -4.0, 0.0),
      b(count, kStateSize, -1.0, 1.0), y(count, inner, 0.0, 0.0);
  ThreadPool pool(state.range(2));
  BenchSteps(state, sessions, StateBytes(inner), pool, [&] {
    recurrence.Run(sessions.segments, sessions.state(), {x.view, dt.view, x.view, b.view, b.view},
                   y.view, pool);
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
