// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which tokens a device draws for a step, and what its answers mean.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_STEP_DRAWS_H_
#define RIVULET_SERVER_ENGINE_STEP_DRAWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/sampling_operations.h"
#include "kernels/ops/sampling/device_rows.h"
#include "server/engine/row_answers.h"
#include "server/engine/step_description.h"
#include "server/engine/step_plan.h"

namespace rivulet {

// Whether the row's first token is one that the host may not know yet.
bool IsPromised(const StepPlan& plan, const StepRow& row);

// The rows whose draws need more edits of logits than are left of `most_edits`: the host samples
// them.
std::vector<bool> RowsForHost(const StepPlan& plan, size_t most_edits);

// Describes what the device gives back at a place, and appends the edits to the description.
SampleRow DrawOf(const StepPlan& plan, const Place& place, EditWriter& writer,
                 StepDescription& here);

// An answer of the device that is still to come.
struct PendingAnswer {
  size_t index = 0;  // of the place among those of the step
  Place place;
  uint64_t position = 0;
  uint32_t logprobs = 0;  // of the sample; 0: none
  uint32_t score_target = 0, score_top = 0;
  // Of the sample; empty: any token may come. In the description of the step, which stays as it is
  // until the answer was taken.
  std::span<const uint64_t> mask = {};
};
PendingAnswer AnswerFor(const StepPlan& plan, const Place& place, size_t index);

// Puts it into its row's result.
void TakeAnswer(const PendingAnswer& pending, const SampleResult& answer,
                const LogprobResult& logits, uint32_t vocab, StepResult& result);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STEP_DRAWS_H_
