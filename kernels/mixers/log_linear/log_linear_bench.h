// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The log-linear recurrences at decode (one token a step for each of some sessions, one thread),
// again and again through the chunk behind `chunks` full ones. Counters, of the thread's own time,
// since a fold's share is a difference and other load must not be part of it:
//
//   pages        that a session holds: each is read once a token
//   us_token     microseconds a token, a sixteenth of a fold included
//   fold_share   how much of that is the fold's
//   GB_s         the bytes that a token must move (mixer_bench.h) over the time
//
// For benchmarks only.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_LOG_LINEAR_BENCH_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_LOG_LINEAR_BENCH_H_

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "kernels/base/thread_seconds.h"
#include "kernels/mixers/bench_sessions.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Arguments: chunks, sessions. Pages: 1, 8, 9 (the most that live on over a fold) and 10 (all of
// them, carried into the last one), of a model with 15 levels; one session, whose pages are in a
// cache, and enough for memory.
inline void LogLinearArguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"chunks", "sessions"})->ArgsProduct({{512, 1020, 1022, 1023}, {1, 32}});
}

inline BenchSessions LogLinearSessions(const benchmark::State& state, const StateLayout& layout) {
  const uint64_t position = static_cast<uint64_t>(state.range(0)) * kFoldInterval;
  return BenchSessions(layout, std::vector<uint64_t>(state.range(1), position));
}

// Times step(), which must advance one token of each session.
template <typename Step>
void BenchLogLinear(benchmark::State& state, BenchSessions& sessions, Step&& step) {
  state.counters["pages"] = static_cast<double>(sessions.pages());
  const double bytes = sessions.bytes_a_token();
  double place[kFoldInterval] = {};
  for (auto _ : state) {
    for (double& seconds : place) {
      sessions.Plan();
      const double start = ThreadSeconds();
      step();
      seconds += ThreadSeconds() - start;
      sessions.Commit();
    }
    sessions.Return();
  }
  double seconds = 0;
  for (const double part : place) seconds += part;
  const double tokens = static_cast<double>(state.iterations() * state.range(1)) * kFoldInterval;
  state.counters["us_token"] = seconds / tokens * 1e6;
  // The last token but for its fold costs what the one before costs.
  state.counters["fold_share"] = (place[kFoldInterval - 1] - place[kFoldInterval - 2]) / seconds;
  state.counters["GB_s"] = tokens * bytes / seconds * 1e-9;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_LOG_LINEAR_BENCH_H_
