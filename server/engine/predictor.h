// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Guesses by the model's own head for further tokens (LoadedPredictor), whose state lies in the
// slots of the sessions. So forks, rewinds and cached prefixes take it along, and a guess depends
// on the session's tokens alone.
//
// The head reads, for the token at place i, that token and the stream behind the token before it.
// Its attention keeps a row for each place. What a step leaves of a session:
//
//   base   stream of the last token before the border
//   tail   streams and ids of the tokens since the border, and how many of the head's rows there
//          are up to date
//
// The head runs late: for all tokens of a chunk when the chunk ends, up to its last mixer, and for
// those since the border when a guess is asked for. So a step without guesses costs copies of its
// streams, and once in a chunk one more layer, without what comes behind its mixer.
//
// Threading: constant after construction; engine thread only.
#ifndef RIVULET_SERVER_ENGINE_PREDICTOR_H_
#define RIVULET_SERVER_ENGINE_PREDICTOR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/recurrence/state.h"
#include "server/engine/guess_plan.h"
#include "server/engine/language_model.h"
#include "server/engine/state_pool.h"

namespace rivulet {

class Predictor {
 public:
  // `model` has a predictor and outlives it.
  explicit Predictor(const LanguageModel& model);

  // Of its own state, which StatePool has behind the model's layers.
  std::vector<const StateLayout*> StateLayouts() const;

  // After Forward of a step with these arguments, which left `stream` [T, hidden].
  absl::Status Follow(std::span<const uint32_t> ids, std::span<const Segment> segments,
                      ConstFloatMatrix stream, const StatePool& states,
                      const LanguageModel::Lent& lent) const;

  // Guesses for all rows of a plan (guess_plan.h). Takes from both workspaces.
  absl::Status Guess(const GuessPlan& plan, const StatePool& states,
                     const LanguageModel::Lent& lent, GuessResult& result) const;

 private:
  class Kept;    // what the slots hold beside the layers' state
  class Inputs;  // of a run of the head
  // A row of a plan that gets further guesses.
  struct OpenRow {
    size_t row;
    const float* stream = nullptr;  // behind its last token
    bool goes_on = true;
  };
  using OpenRows = std::vector<OpenRow>;

  Kept KeptIn(const StatePool& states) const;
  absl::Status FollowFolds(std::span<const uint32_t> ids, std::span<const Segment> segments,
                           ConstFloatMatrix normed, const StatePool& states,
                           const LanguageModel::Lent& lent) const;
  absl::Status Run(const Inputs& inputs, const StatePool& states, const LanguageModel::Lent& lent,
                   FloatMatrix normed) const;
  // Run for the state alone.
  absl::Status Advance(const Inputs& inputs, const StatePool& states,
                       const LanguageModel::Lent& lent) const;
  Inputs InputsOf(const GuessPlan& plan, const StatePool& states) const;
  void Draw(const GuessPlan& plan, const Inputs& inputs, ConstFloatMatrix normed,
            const LanguageModel::Lent& lent, OpenRows& open, GuessResult& result) const;

  const LanguageModel& model_;
  const size_t first_layer_;  // of its own, in StatePool
  StateLayout kept_;
  size_t base_stream_, tail_streams_, tail_ids_, tail_done_;  // offsets
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_PREDICTOR_H_
