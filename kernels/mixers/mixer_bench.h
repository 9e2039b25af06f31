// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the mixers' benchmarks share: a layer of generated weights, decoding one token for each of
// some sessions, with the bytes that it cannot avoid beside the time. Counters:
//
//   us_token   microseconds a token
//   MB_token   bytes a token must move: each checkpoint once, a sixteenth of the fold's read and
//              write, half a tail, and the step's share of the weights
//   share      of the bandwidth with which the same threads read memory. Few sessions and small
//              weights fit in cache, and then it may exceed 1. A whole layer with many sessions is
//              bound by the arithmetic of its projections instead; the recurrence alone never is.
//
// For benchmarks only.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_BENCH_H_
#define RIVULET_KERNELS_MIXERS_MIXER_BENCH_H_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/mixers/mixer_suite.h"
#include "nlohmann/json.hpp"

namespace rivulet {

// Bytes a second that `pool` reads from memory, the best of five passes over 256 MiB.
inline double ReadBandwidth(ThreadPool& pool) {
  constexpr size_t kWords = size_t{1} << 25, kTasks = 64;
  static AlignedBuffer<uint64_t>& words = *new AlignedBuffer<uint64_t>(kWords);
  // Pages that nobody wrote are all one page of zeros, which lies in the cache.
  std::fill_n(words.data(), kWords, uint64_t{1});
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(kTasks, [&](size_t task) {
      const uint64_t* from = words.data() + task * (kWords / kTasks);
      benchmark::DoNotOptimize(std::accumulate(from, from + kWords / kTasks, uint64_t{0}));
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kWords * sizeof(uint64_t)) / seconds.count());
  }
  return best;
}

// A layer with generated weights of these shapes, all in [-0.1, 0.1). Ends the benchmark with an
// error if the mixer does not take exactly them.
inline std::unique_ptr<Mixer> MakeBenchLayer(
    benchmark::State& state, MixerFactory make, const nlohmann::json& config, size_t hidden,
    const std::map<std::string, std::vector<size_t>>& shapes, size_t* weight_bytes) {
  std::map<std::string, TensorSpec> tensors;
  for (const auto& [name, shape] : shapes) tensors[name] = {shape, -0.1, 0.1};
  GeneratedParameters parameters(tensors, DType::kFloat32);
  auto mixer = make({config, hidden, parameters, {}});
  if (!mixer.ok() || !parameters.Problems().empty()) {
    state.SkipWithError("the mixer does not take these tensors");
    return nullptr;
  }
  *weight_bytes = parameters.linear_bytes();
  return *std::move(mixer);
}

// Slots of sessions of one layer and the segments of a decode step.
struct BenchSessions {
  BenchSessions(const StateLayout& layout, size_t count)
      : checkpoint(RoundUp(layout.checkpoint_bytes(), kAlignment)),
        tail(RoundUp(layout.tail_bytes(), kAlignment)),
        checkpoints(count * checkpoint),
        tails(count * tail),
        segments(count) {
    // Small numbers everywhere: pages that nobody wrote would be one page of zeros in the cache.
    std::fill_n(checkpoints.data(), checkpoints.size(), std::byte{0x3c});
    std::fill_n(tails.data(), tails.size(), std::byte{0x3c});
    for (size_t s = 0; s < count; ++s) {
      const uint32_t slot = static_cast<uint32_t>(s);
      // Sessions fold at different steps, as they do in a server.
      segments[s] = {.first_token = s,
                     .tokens = 1,
                     .position = s % kFoldInterval,
                     .checkpoint_in = slot,
                     .checkpoint_out = slot,
                     .tail = slot};
    }
  }
  LayerState state() {
    LayerState state;
    state.checkpoints = checkpoints.data();
    state.checkpoint_stride = checkpoint;
    state.tails = tails.data();
    state.tail_stride = tail;
    return state;
  }
  // What a token's state costs: one read, a sixteenth of a fold's read and write, half a tail.
  double bytes_a_token() const {
    return static_cast<double>(checkpoint) * (1.0 + 2.0 / kFoldInterval) + tail / 2.0;
  }

  size_t checkpoint, tail;  // bytes
  AlignedBuffer<std::byte> checkpoints, tails;
  std::vector<Segment> segments;
};

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
    step();
    for (Segment& segment : sessions.segments) ++segment.position;
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
  const BenchRows x(count, hidden, -1.0, 1.0), y(count, hidden, 0.0, 0.0);
  Workspace workspace;
  ThreadPool pool(threads);
  const MixerStep step{sessions.segments, sessions.state(), &workspace, &pool};
  const double weights = static_cast<double>(weight_bytes) / static_cast<double>(count);
  BenchSteps(state, sessions, sessions.bytes_a_token() + weights, pool, [&] {
    if (!mixer.Forward(step, x.view, y.view).ok()) state.SkipWithError("Forward failed");
    workspace.Reset();
  });
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_BENCH_H_
