// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/step_times.h"

#include <algorithm>

namespace rivulet {
namespace {

using std::chrono::microseconds;

// A thread's sleep ends up to so much late, and steps of one kind differ by some percent.
constexpr microseconds kMargin{40};
constexpr int kPart = 32;
// A core that has slept runs the next step's preparation more slowly, its caches empty: with steps
// of half a millisecond that costs 2 to 20 % of the tokens (docs/gpu_notes.md#streaming).
constexpr microseconds kShortestStep{2000};

}  // namespace

StepTimes::Clock::duration StepTimes::Sleep(size_t kind) const {
  const Clock::duration expected = expected_[kind];
  if (expected < kShortestStep) return Clock::duration::zero();
  return expected - expected / kPart - kMargin;
}

// What is expected falls at once and rises slowly, by no more than the margin, so that one long
// step makes the next one no later.
void StepTimes::Learn(size_t kind, Clock::duration took) {
  Clock::duration& expected = expected_[kind];
  const bool known = expected != Clock::duration::zero();
  expected = known ? std::min(took, expected + expected / kPart) : took;
}

}  // namespace rivulet
