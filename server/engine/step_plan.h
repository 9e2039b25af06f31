// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the scheduler asks of the engine for one step, and what comes back. Plain values: which
// tokens of which slots are processed, and which rows want logits. The engine learns nothing of
// requests, sessions, streams or deadlines.
#ifndef RIVULET_SERVER_ENGINE_STEP_PLAN_H_
#define RIVULET_SERVER_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// How to pick the token after a row's last one. What it points to belongs to the row's owner, who
// may change it as soon as Engine::Launch has returned.
struct SampleSpec {
  const SamplingParams* params = nullptr;       // with the seed; never null in a row that samples
  const TokenCounts* session_counts = nullptr;  // all tokens of the session, for repetition_penalty
  const TokenCounts* turn_counts = nullptr;     // this turn's tokens, frequency and presence
  uint32_t index = 0;                           // which of the n completions
  uint64_t position = 0;                        // absolute position of the token to be sampled
  bool forbid_stops = false;  // min_tokens not reached: ids below may not be drawn
  const std::vector<uint32_t>* stop_ids = nullptr;  // EOS and stop ids; null: none
  uint32_t logprobs = 0;                            // 0: none; n: the chosen token and the n best
};

// A run of tokens of one session. `segment.first_token` indexes StepPlan::tokens.
struct StepRow {
  Segment segment;
  bool sample = false;  // pick a token after the last one, by `spec`
  SampleSpec spec;
  // Score: for place i of the segment, the log-probability of score_targets[i] given everything up
  // to token i, and the `score_top` best. Shorter than the segment: the remaining places are not
  // scored.
  std::vector<uint32_t> score_targets;
  uint32_t score_top = 0;  // <= kMaxTopLogprobs
};

struct StepPlan {
  std::vector<uint32_t> tokens;  // of all rows, each row's consecutive
  std::vector<StepRow> rows;
  bool empty() const { return rows.empty(); }
};

struct RowResult {
  absl::Status status;  // not OK: this row failed, its slots' state is undefined, others are fine
  bool sampled = false;
  uint32_t token = 0;
  Logprobs logprob;              // if spec.logprobs
  std::vector<Logprobs> scores;  // one for each of score_targets
};

struct StepResult {
  std::vector<RowResult> rows;  // as in StepPlan::rows
  double device_seconds = 0;    // that the device spent on the step; 0: not measured
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STEP_PLAN_H_
