// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What is asked of an engine whose model guesses its own next tokens, and what comes back.
#ifndef RIVULET_SERVER_ENGINE_GUESS_PLAN_H_
#define RIVULET_SERVER_ENGINE_GUESS_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/ops/sampling/sampling.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Of a row: none is behind a border, where the head's state would have to fold.
inline constexpr uint32_t kMostGuesses = kFoldInterval - 1;

struct GuessRow {
  // The token that the row's next step feeds, as that step's segment: one token, at first_token of
  // GuessPlan::tokens. It must not fold, nor may the guesses that follow it but the last:
  // position % C + count < C.
  Segment segment;
  uint32_t count = 0;                      // guesses, 1 to kMostGuesses
  const SamplingParams* params = nullptr;  // of the tokens that are guessed
  DrawPlace place;                         // of the first of them
};

struct GuessPlan {
  std::vector<uint32_t> tokens;
  std::vector<GuessRow> rows;
};

struct GuessResult {
  absl::Status status;  // not OK: there are none
  // Of each row; fewer where a logit is not finite, none where the head has not followed all tokens
  // of the session (StepPlan::head_follows).
  std::vector<std::vector<uint32_t>> guesses;
  double seconds = 0;  // that all of them took
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_GUESS_PLAN_H_
