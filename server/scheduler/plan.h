// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which rows run in the next step, and with how many tokens: a function of its arguments, with no
// clock, lock or engine in it, so that it is tested as one.
//
// Rules, in order:
//  1. a row past its deadline is reported and does not run;
//  2. a row whose stream's outbox is full sits out;
//  3. every row that decodes runs, one token each;
//  4. prompts share the tokens that StepCost allows beside those rows. They take turns of
//     kPromptTurnTokens each, in the order in which they were let in or had their last turn: none
//     starves, no long one holds up short ones, and short ones are through in one turn instead of
//     all together at the end. As many run at once as can have a piece of some chunks; these get
//     equal shares, and what a short prompt leaves goes to the longer ones. A piece ends at an
//     absolute chunk border where it can, since a fold costs the same for a full chunk and a part
//     of one.
// How a prompt is cut never changes a bit of what comes out.
#ifndef RIVULET_SERVER_SCHEDULER_PLAN_H_
#define RIVULET_SERVER_SCHEDULER_PLAN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/scheduler/step_cost.h"

namespace rivulet {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
inline constexpr TimePoint kNoDeadline = TimePoint::max();

// A prompt that has run so many tokens goes to the back.
inline constexpr uint32_t kPromptTurnTokens = 256;

// A row as the planner sees it.
struct RowView {
  uint64_t position = 0;     // absolute position of the row's next token
  uint32_t prompt_left = 0;  // prompt tokens not yet processed; 0: the row decodes
  bool outbox_full = false;
  TimePoint deadline = kNoDeadline;
  // Of a prompt: greater than another's if its last turn ended, or it was let in, after that one's.
  // In one step, those that stand earlier in StepChoice::run have the smaller numbers.
  uint64_t last_turn = 0;
};

struct PlannedRow {
  size_t row = 0;  // index into the rows given
  uint32_t tokens = 0;
  bool operator==(const PlannedRow&) const = default;
};

struct StepChoice {
  std::vector<PlannedRow> run;  // decode rows in the order given, then prompts by their last turn
  std::vector<size_t> expired;
};

StepChoice PlanStep(TimePoint now, std::span<const RowView> rows, const StepCost& cost,
                    const PlanLimits& limits);

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_PLAN_H_
