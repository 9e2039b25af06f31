// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Sessions of one layer for benchmarks, at any position without having come there: the pages that
// the position asks for are planned, and bases, tails and pages hold small numbers. What such
// a layer computes is noise; how long it takes is not.
//
// For benchmarks only: fails through CHECK.
#ifndef RIVULET_KERNELS_MIXERS_BENCH_SESSIONS_H_
#define RIVULET_KERNELS_MIXERS_BENCH_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/mixers/suite_slots.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class BenchSessions {
 public:
  // Tokens that a session may go on from its position; then Plan puts it back there.
  static constexpr uint64_t kRoom = 2048;

  // A session for each of `positions`, with `tokens` tokens a step.
  BenchSessions(const StateLayout& layout, std::vector<uint64_t> positions, size_t tokens = 1);
  // `count` fresh ones. They fold at different steps, as they do in a server.
  BenchSessions(const StateLayout& layout, size_t count, size_t tokens = 1);
  BenchSessions(const BenchSessions&) = delete;
  BenchSessions& operator=(const BenchSessions&) = delete;

  LayerState state() { return slots_.state(); }

  // The next step, in `segments`; it ran.
  void Plan();
  void Commit();
  // Back to where they were made. REQUIRES: nothing is planned.
  void Return();

  // Of one session (the first) now.
  size_t pages() const { return sessions_[0].pages.pages(); }
  size_t state_bytes() const;  // base and pages
  // What a token's state costs, on average over the C tokens from here, if each session goes on a
  // token at a time: what is there is read once, and once in C tokens a fold reads and writes.
  double bytes_a_token() const;

  std::vector<Segment> segments;

 private:
  void MoveTo(uint64_t position, SuiteSession& session);

  const StateLayout& layout_;
  std::vector<uint64_t> positions_;
  size_t tokens_;
  SuiteSlots slots_;
  std::vector<SuiteSession> sessions_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_BENCH_SESSIONS_H_
