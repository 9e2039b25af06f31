// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// From a step's logits to its rows' results: what every engine does on the host. Checks of a plan,
// the places whose logits are wanted, sampling and scoring at a place.
//
// Threading: pure functions; AnswerPlace of different places of a plan may run at once, unless they
// belong to one row and one entry of its result.
#ifndef RIVULET_SERVER_ENGINE_ROW_ANSWERS_H_
#define RIVULET_SERVER_ENGINE_ROW_ANSWERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/state_pool.h"
#include "server/engine/step_plan.h"
#include "server/grammar/token_grammar.h"

namespace rivulet {

// A token of the step whose logits are needed.
struct Place {
  static constexpr size_t kNone = SIZE_MAX;
  size_t row = 0;         // in StepPlan::rows
  size_t token = 0;       // in StepPlan::tokens
  size_t score = kNone;   // in StepRow::score_targets
  size_t sample = kNone;  // of StepRow::samples
};

// Those of the rows that have not failed.
std::vector<Place> PlacesOf(const StepPlan& plan, const StepResult& result);

// A result with room for the plan's answers, and a status for each row that cannot run: a token
// outside of the vocabulary, or a page table that does not fit. `promises`: kLastSampled is a
// token.
StepResult CheckRows(const StepPlan& plan, uint32_t vocab, const StateCapacity& capacity,
                     bool promises = false);

// Scores and samples at a place from its logits [vocab], which it may change meanwhile.
absl::Status AnswerPlace(const StepPlan& plan, const Place& place, std::span<float> logits,
                         RowResult& result);

// The tokens that may come at a sample of a row with a grammar: those that the grammar takes, and
// stop ids where the text may end, and there alone. Rows whose texts are at the same place of a
// grammar have equal ones.
struct RowMask {
  AllowedTokens allowed;
  bool may_end = false;
  const std::vector<uint32_t>* ends = nullptr;  // SampleSpec::stop_ids

  bool operator==(const RowMask& other) const;
  template <typename H>
  friend H AbslHashValue(H h, const RowMask& mask) {
    return H::combine(std::move(h), mask.allowed.state.get(), mask.allowed.first, mask.may_end);
  }
};
// Fails as GrammarMatcher::Allowed. Several threads may do it at once.
absl::StatusOr<RowMask> FindMask(const StepPlan& plan, const Place& place);
// As a device takes them (kernels/device/sampling_operations.h); `bits` has MaskWords(vocab) words.
// FAILED_PRECONDITION: none may come.
absl::Status WriteMask(const RowMask& mask, size_t vocab, std::span<uint64_t> bits);
// FAILED_PRECONDITION: the token was drawn and the mask lacks it, so penalties have brought it
// back.
absl::Status CheckConfined(uint32_t token, std::span<const uint64_t> mask);

// What a sample of a row is drawn by: the tokens before it, and the ids that may not come.
TokenHistory HistoryOf(const StepPlan& plan, const StepRow& row, size_t sample);
std::span<const uint32_t> ForbiddenFor(const SampleSpec& spec, size_t sample);

// Notes what is not OK at a place: of a sample after the row's first, or of the row.
void NoteFailure(const absl::Status& status, const Place& place, RowResult& row);

// The status of a place, with its position.
uint64_t PositionOf(const StepRow& row, const Place& place);
absl::Status At(const absl::Status& status, const Place& place, uint64_t position);

// RESOURCE_EXHAUSTED: there was no memory `when`.
absl::Status NoMemory(const char* when);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_ROW_ANSWERS_H_
