// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the mixers' benchmarks share: a layer of generated weights, decoding one token for each of
// some sessions, with the bytes that it cannot avoid beside the time. Counters:
//
//   us_token   microseconds a token
//   MB_token   bytes a token must move: each base and its pages once, a sixteenth of the
//              fold's read and write, half a tail, and the step's share of the weights
//   share      of the bandwidth with which the same threads read memory. Few sessions and small
//              weights fit in cache, and then it may exceed 1. A whole layer with many sessions is
//              bound by the arithmetic of its projections instead; the recurrence alone never is.
//
// For benchmarks only.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_BENCH_H_
#define RIVULET_KERNELS_MIXERS_MIXER_BENCH_H_

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/bench_sessions.h"
#include "kernels/mixers/mixer_suite.h"
#include "kernels/ops/linear/machine_limits.h"

namespace rivulet {

// A layer with generated weights of these shapes, all in [-0.1, 0.1). Ends the benchmark with an
// error if the mixer does not take exactly them.
template <typename Config>
std::unique_ptr<Mixer> MakeBenchLayer(benchmark::State& state, const Config& config, size_t hidden,
                                      const std::map<std::string, std::vector<size_t>>& shapes,
                                      size_t* weight_bytes) {
  std::map<std::string, TensorSpec> tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = {shape, -0.1, 0.1};
  GeneratedParameters parameters(tensors, DType::kFloat32);
  auto mixer = MakeLayer(config, {hidden, parameters, {}});
  if (!mixer.ok() || !parameters.Problems().empty()) {
    state.SkipWithError("the mixer does not take these tensors");
    return nullptr;
  }
  *weight_bytes = parameters.linear_bytes();
  return *std::move(mixer);
}

// Rows of generated numbers.
struct BenchRows {
  BenchRows(size_t rows, size_t columns, double low, double high)
      : buffer(rows * PaddedColumns(columns)),
        view{buffer.data(), rows, columns, PaddedColumns(columns)} {
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = GeneratedFloat("x", 0, i, low, high);
  }
  AlignedBuffer<float> buffer;
  FloatMatrix view;
};

// Times step(), which must advance one token of each session.
template <typename Step>
void BenchSteps(benchmark::State& state, BenchSessions& sessions, double bytes_a_token,
                ThreadPool& pool, Step&& step) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (auto _ : state) {
    sessions.Plan();
    step();
    sessions.Commit();
  }
  const std::chrono::duration<double> seconds = Clock::now() - start;
  const double tokens = static_cast<double>(state.iterations() * sessions.segments.size());
  state.counters["us_token"] = seconds.count() / tokens * 1e6;
  state.counters["MB_token"] = bytes_a_token * 1e-6;
  state.counters["share"] = tokens * bytes_a_token / seconds.count() / ReadBandwidth(pool);
}

// A whole layer, one token a step for each of `count` sessions.
inline void BenchDecode(benchmark::State& state, const Mixer& mixer, size_t hidden,
                        size_t weight_bytes, size_t count, size_t threads) {
  BenchSessions sessions(mixer.state_layout(), count);
  const BenchRows x(count, hidden, -1.0, 1.0), y(count, hidden, 0.0, 0.0),
      handed_on(count, mixer.handed_on_columns(), 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(threads);
  LayerStep step{sessions.segments, sessions.state(), &workspace, &pool};
  step.handed_on = handed_on.view;
  const double weights = static_cast<double>(weight_bytes) / static_cast<double>(count);
  BenchSteps(state, sessions, sessions.bytes_a_token() + weights, pool, [&] {
    if (!mixer.Forward(step, x.view, y.view).ok()) state.SkipWithError("Forward failed");
    workspace.Reset();
  });
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_BENCH_H_
