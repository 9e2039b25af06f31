// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The log-linear recurrences at decode (one token a step for each of some sessions, one thread),
// again and again through one chunk of sessions that hold `chunks` full ones. Counters, of the
// thread's own time, since a fold's share is a difference and other load must not be part of it:
//
//   pages        that the sessions hold: each is read once a token
//   us_token     microseconds a token, a sixteenth of a fold included
//   fold_share   how much of that is the fold's
//   GB_s         bytes a token must move (pages read once, a sixteenth of the fold's reads and
//                writes) over the time
//
// For benchmarks only.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_LOG_LINEAR_BENCH_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_LOG_LINEAR_BENCH_H_

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/mixers/mixer_bench.h"
#include "kernels/recurrence/fenwick.h"

namespace rivulet {

struct LogLinearSessions {
  LogLinearSessions(const StateLayout& layout, size_t count, uint64_t chunks)
      : sessions(layout, count),
        kind(layout.page_kind()),
        page_bytes(RoundUp(layout.page_bytes(), kAlignment)),
        each(kind.levels + 1),
        bytes(count * each * page_bytes),
        tables(count * 2 * kind.levels, kNoPage),
        pages(count) {
    // Small numbers everywhere: memory that nobody wrote would be one page of zeros in the cache.
    std::fill_n(bytes.data(), bytes.size(), std::byte{0x3c});
    std::fill_n(sessions.checkpoints.data(), sessions.checkpoints.size(), std::byte{0});
    for (size_t s = 0; s < count; ++s) FillTables(s, chunks);
  }

  // Which pages a session has before and after the fold of its next chunk.
  void FillTables(size_t session, uint64_t chunks) {
    uint32_t* before = tables.data() + session * 2 * kind.levels;
    uint32_t* after = before + kind.levels;
    const uint32_t first = static_cast<uint32_t>(session * each);
    const uint32_t made = CarryPage(chunks, kind.levels);
    for (uint32_t p = 0; p < kind.levels; ++p) {
      if (HasPage(chunks, p, kind.levels)) before[p] = first + p;
      if (p > made) after[p] = before[p];
    }
    after[made] = first + kind.levels;
    pages[session] = {.slots = before, .levels = kind.levels};
    sessions.segments[session].pages = &pages[session];
  }

  LayerState state() {
    LayerState state = sessions.state();
    state.pages = bytes.data();
    state.page_stride = page_bytes;
    return state;
  }

  BenchSessions sessions;
  PageKind kind;
  size_t page_bytes, each;
  AlignedBuffer<std::byte> bytes;
  std::vector<uint32_t> tables;
  std::vector<SegmentPages> pages;
};

// How many pages the fold of chunk `chunks` reads and writes.
inline size_t PagesFolded(const PageKind& kind, uint64_t chunks) {
  const uint32_t made = CarryPage(chunks, kind.levels);
  size_t moved = 1;
  for (uint32_t p = 0; p < kind.levels; ++p) {
    if (!HasPage(chunks, p, kind.levels)) continue;
    if (p <= made) moved += 1;
    if (p > made && kind.rule == PageRule::kRewrittenFenwick) moved += 2;
  }
  return moved;
}

// Seconds that this thread has run.
inline double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Times step(), which must advance one token of each session. range(0): chunks.
template <typename Step>
void BenchLogLinear(benchmark::State& state, LogLinearSessions& all, Step&& step) {
  const uint64_t chunks = state.range(0);
  double place[kFoldInterval] = {};
  size_t rounds = 0;
  for (auto _ : state) {
    for (size_t a = 0; a < kFoldInterval; ++a) {
      for (Segment& segment : all.sessions.segments) {
        segment.position = chunks * kFoldInterval + a;
      }
      const double start = ThreadSeconds();
      step();
      place[a] += ThreadSeconds() - start;
    }
    ++rounds;
  }
  double seconds = 0;
  for (const double part : place) seconds += part;
  const double tokens = static_cast<double>(rounds * kFoldInterval * all.sessions.segments.size());
  size_t held = 0;
  for (uint32_t p = 0; p < all.kind.levels; ++p) held += HasPage(chunks, p, all.kind.levels);
  const double moved =
      static_cast<double>(held) + static_cast<double>(PagesFolded(all.kind, chunks)) / 16.0;
  state.counters["pages"] = static_cast<double>(held);
  state.counters["us_token"] = seconds / tokens * 1e6;
  // The last token but for its fold costs what the one before costs.
  state.counters["fold_share"] = (place[15] - place[14]) / seconds;
  state.counters["GB_s"] = tokens * moved * static_cast<double>(all.page_bytes) / seconds * 1e-9;
}

// Pages 1, 8, 9 (the most that live on) and 10 (all of them, carried into the last), of a model
// with 15 levels; one session, whose pages lie in a cache, and enough for memory.
inline void LogLinearArguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"chunks", "sessions"})->ArgsProduct({{512, 1020, 1022, 1023}, {1, 32}});
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_LOG_LINEAR_BENCH_H_
