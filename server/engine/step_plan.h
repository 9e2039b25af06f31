// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the scheduler asks of the engine for one step, and what comes back. Plain values: which
// tokens of which slots are processed, and which rows need logits. The engine knows nothing of
// requests, sessions, streams or deadlines.
#ifndef RIVULET_SERVER_ENGINE_STEP_PLAN_H_
#define RIVULET_SERVER_ENGINE_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class GrammarMatcher;

// How to pick the tokens that a row samples: one after each of its last StepRow::samples tokens,
// each as if the tokens before it had been fed one at a time. What this points to belongs to the
// row's owner, who may change it as soon as Engine::Launch has returned.
struct SampleSpec {
  const SamplingParams* params = nullptr;  // with the seed; never null in a row that samples
  // The tokens that count for repetition_penalty (all of the session) and for frequency and
  // presence (this turn's), up to and including the one at the first sample. The engine adds the
  // row's tokens after that to both as it goes along. Null: `params` does not ask for them, or
  // there is none.
  const TokenCounts* session_counts = nullptr;
  const TokenCounts* turn_counts = nullptr;
  uint32_t index = 0;         // which of the n completions
  uint64_t position = 0;      // absolute position of the first token to be sampled
  uint32_t forbid_stops = 0;  // so many of the samples, from the first on, may not be a stop id
  const std::vector<uint32_t>* stop_ids = nullptr;  // EOS and stop ids; null: none
  uint32_t logprobs = 0;                            // 0: none; n: the chosen token and the n best
  // What the text must match, up to and including the token at the first sample. Null: any text.
  // Not in a row that begins with kLastSampled, whose token the grammar lacks.
  const GrammarMatcher* grammar = nullptr;
};

// A run of tokens of one session. `segment.first_token` indexes StepPlan::tokens.
struct StepRow {
  Segment segment;
  uint32_t samples = 0;  // tokens to pick, by `spec`; at most segment.tokens
  SampleSpec spec;
  // Score: for place i of the segment, the log-probability of score_targets[i] given everything up
  // to token i, and the `score_top` best. Shorter than the segment: the remaining places are not
  // scored.
  std::vector<uint32_t> score_targets;
  uint32_t score_top = 0;  // <= kMaxTopLogprobs
};

// In StepPlan::tokens: the last token that was sampled for the row's tail, in a step that may still
// run. Only as the first token of a row that samples after each of its tokens. Its counts lack the
// token too: the engine adds it.
inline constexpr uint32_t kLastSampled = UINT32_MAX;

struct StepPlan {
  std::vector<uint32_t> tokens;  // of all rows, each row's consecutive
  std::vector<StepRow> rows;
  // Whether the model's own head takes in these tokens too, where that costs time in each step: on
  // a device. Without it the sessions get no guesses from then on (Engine::Guess). It changes no
  // bit of the results.
  bool head_follows = true;
  bool empty() const { return rows.empty(); }
};

struct SampledToken {
  // Not OK: there is no such sample, nor a later one. OK of a row's first: its failure is the
  // row's. Those after it may follow a draft that is wrong, and their failure then means nothing.
  absl::Status status;
  uint32_t token = 0;
  Logprobs logprob;  // if spec.logprobs
};

struct RowResult {
  // Not OK: this row failed before its first sample or in it. What it was to write (its rows of the
  // tail, base_out, its folds' pages) is undefined; other rows are fine.
  absl::Status status;
  absl::InlinedVector<SampledToken, 1> samples;  // as many as StepRow::samples, in order
  std::vector<Logprobs> scores;                  // one for each of score_targets
};

struct StepResult {
  std::vector<RowResult> rows;  // as in StepPlan::rows
  double device_seconds = 0;    // that the device spent on the step; 0: not measured
  uint32_t replays = 0;         // of recorded steps, by which it ran
  // The model's own head ran in the step. Not where it runs late, nor for rows alone of which it
  // lacks earlier tokens.
  bool head_followed = false;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STEP_PLAN_H_
