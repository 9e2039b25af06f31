// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Estimates the time of a step from the steps before it, and from that how many prompt tokens may
// join the next one (docs/architecture.md#how-much-prompt-joins-a-step).
// Threading: none of its own; the scheduler's, on the engine thread.
#ifndef RIVULET_SERVER_SCHEDULER_STEP_COST_H_
#define RIVULET_SERVER_SCHEDULER_STEP_COST_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace rivulet {

// What steps take is known for 2^i to 2^(i+1) - 1 decode rows at a time: the number of theirs among
// `points`, of which the last is of more rows too. REQUIRES: decode_rows > 0.
inline size_t PointOf(size_t decode_rows, size_t points) {
  return std::min<size_t>(std::bit_width(decode_rows) - 1, points - 1);
}

struct PlanLimits {
  // Prompts may lengthen a step by this times what its decode rows take alone.
  double prompt_share = 1.0;
  // Where more prompts wait than rows decode: by prompts / decode rows, up to this.
  double most_prompt_share = 4.0;
  // How long a step without decode rows may take: requests that arrive meanwhile wait for its end.
  // Where one token takes long, a step may take three times that instead, or pieces would be too
  // small.
  double prompt_seconds = 0.05;
  // Bounds a step's memory, also where time would allow more.
  uint32_t max_prompt_tokens = 512;
};

class StepCost {
 public:
  // `fold_interval`: the engine's.
  explicit StepCost(size_t fold_interval) : fold_interval_(fold_interval) {}

  size_t fold_interval() const { return fold_interval_; }

  // A step of that many decode rows and prompt tokens, not both 0, took so long.
  void Observe(size_t decode_rows, size_t prompt_tokens, double seconds);

  // Seconds that this many decode rows take alone; 0: not known.
  double DecodeSeconds(size_t decode_rows) const;
  // Whether that was measured for about this many, and not only for fewer or more.
  bool Measured(size_t decode_rows) const;

  // How many prompt tokens may join a step of this many decode rows. At least 1, except 0 when the
  // step must run without prompts to measure its decode rows.
  uint32_t PromptTokens(size_t decode_rows, size_t prompts, const PlanLimits& limits) const;

 private:
  // A moving mean that one outlier (a preempted thread) cannot move far.
  struct Mean {
    double value = 0;  // 0: nothing yet
    void Add(double sample);
  };
  // Of steps of 2^i to 2^(i+1) - 1 decode rows: their mean size and time.
  struct DecodePoint {
    Mean rows;
    Mean seconds;
    size_t measured = 0;
  };
  // What pieces of prompts take, beside decode rows or alone: a ratio of sums in which older steps
  // fade. Not a mean of ratios: there the noise of a step with one token would
  // weigh as much as a step of a hundred.
  struct PromptCost {
    double seconds = 0;
    double tokens = 0;
    double last_tokens = 0;  // of the step before: the next one is at most twice as large
    double TokenSeconds() const { return tokens > 0 ? seconds / tokens : 0; }
    // A step of `step_seconds`, of which `added_seconds` are more than its decode rows take.
    void Add(double step_seconds, double added_seconds, size_t step_tokens);
  };

  void AddDecode(size_t decode_rows, double seconds);
  static double Budget(const PromptCost& cost, double seconds, size_t first_tokens);
  bool MustMeasure(size_t decode_rows) const;

  const size_t fold_interval_;
  std::array<DecodePoint, 24> decode_;
  PromptCost beside_decode_;
  PromptCost alone_;
  size_t steps_since_measured_ = 0;  // with decode rows and prompts
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_STEP_COST_H_
