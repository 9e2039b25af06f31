// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which rows run in the next step, and with how many tokens. A pure function, without clock, lock
// or engine, and tested as one.
//
// Rules, in order:
//  1. a row past its deadline is reported and does not run;
//  2. a row whose stream's outbox is full sits out;
//  3. every row that decodes runs, one token each; where tenants share the machine, as many of each
//     as fair_share.h says;
//  4. prompts share the tokens that StepCost allows beside those rows. They take turns of
//     kPromptTurnTokens each, in the order in which they were admitted or had their last turn. So
//     none starves, a long prompt does not hold up short ones, and short ones finish one after the
//     other instead of all together at the end. As many run at once as can have a piece of several
//     chunks each. They get equal shares, and what a short prompt does not use goes to longer ones.
//     Tenants share these tokens by their weights, and not by the number of their prompts. A piece
//     ends at an absolute chunk border if possible, since a fold costs the same for a full
//     chunk as for a part of one, and at RowView::to_cut at the latest.
// How a prompt is split never changes a bit of the output.
#ifndef RIVULET_SERVER_SCHEDULER_PLAN_H_
#define RIVULET_SERVER_SCHEDULER_PLAN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "server/scheduler/step_cost.h"

namespace rivulet {

class Tenant;

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
inline constexpr TimePoint kNoDeadline = TimePoint::max();
inline double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

// After this many tokens a prompt goes to the back of the queue.
inline constexpr uint32_t kPromptTurnTokens = 256;

// A row as the planner sees it.
struct RowView {
  uint64_t position = 0;     // absolute position of the row's next token
  uint32_t prompt_left = 0;  // prompt tokens not yet processed; 0: the row decodes
  // Of these, those before the next position where a piece has to end; 0: there is none.
  uint32_t to_cut = 0;
  bool outbox_full = false;
  TimePoint deadline = kNoDeadline;
  // Of a prompt: greater than another's if its last turn ended, or it was admitted, later. Of a row
  // that decodes: if it ran later. Within one step, rows that come earlier in StepChoice::run get
  // the smaller numbers.
  uint64_t last_turn = 0;
  const Tenant* tenant = nullptr;  // rows with the same one share what it gets
  uint32_t weight = 1;             // its own beside that of others
};

struct PlannedRow {
  size_t row = 0;  // index into the rows given
  uint32_t tokens = 0;
  uint32_t drafts = 0;  // beside them, of a row that decodes; PlanStep leaves it 0
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
