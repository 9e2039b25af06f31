// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How many drafts each row of a step checks. A draft is worth its time if the tokens that it is
// expected to give take longer without it. So it depends on how likely it is, on what a further
// token costs in a step of so many rows, which is measured, and on nothing that changes a token.
//
// No row is to be slower than without drafts: they may lengthen a step by no more than each of its
// rows expects of its own drafts in this step, and has gained by earlier ones. DraftBudget is the
// account of that, and bounds what drafts cost where what was expected of them is wrong: a row that
// has lost more than its kMostDebt bears nothing.
//
// Threading: none of its own; the scheduler's, on the engine thread.
#ifndef RIVULET_SERVER_SCHEDULER_DRAFT_CHOICE_H_
#define RIVULET_SERVER_SCHEDULER_DRAFT_CHOICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "server/drafts/drafter.h"
#include "server/scheduler/draft_budget.h"
#include "server/scheduler/step_cost.h"

namespace rivulet {

// What is known of a row before its drafter looks for guesses.
struct DraftStanding {
  // How many times as many tokens a step gives it if each of its guesses is checked, at least 1: by
  // how often they were right.
  double gain = 1;
  double credit = 0;  // of its DraftBudget
};

// What a row could check in the next step.
struct DraftProspect {
  std::array<float, kMostDrafts> chances = {};  // as Drafter::Outlook
  size_t count = 0;                             // of them
  double seconds_a_draft = 0;                   // as Drafter::seconds_a_draft
  double seconds_before = 0;                    // as Drafter::seconds_before_drafts
  DraftStanding standing;
};

// A step of decode rows alone.
struct DecodeStep {
  size_t rows = 0;
  size_t drafts = 0;         // beside them
  size_t right = 0;          // drafts that gave a token
  double seconds = 0;        // that the step took; 0: not measured
  double draft_seconds = 0;  // that making the drafts took before it
};

// What a step with drafts took longer than one without, in steps without: to make and check them,
// and to read contexts before that.
struct DraftLoss {
  double lengthened = 0;
  double read = 0;
};

class DraftChoice {
 public:
  // `cost` outlives it.
  explicit DraftChoice(const StepCost& cost);

  // Before StepCost learns of it. Returns what each row of the step has lost, before the tokens
  // that its own drafts gave it; nullopt: that is not known.
  std::optional<DraftLoss> Observe(const DecodeStep& step);

  // Whether drafts would not pay in a step of these rows, so that it is in vain to look for them,
  // or were looked for in vain so often that it is left to a later step. If so, the step counts as
  // one for which Choose chose none. Few rows are never hopeless: looking takes next to no time.
  bool Hopeless(std::span<const DraftStanding> rows);

  // How many drafts each row checks in a step of `rows` and no prompts.
  std::vector<uint32_t> Choose(std::span<const DraftProspect> rows);

  // Seconds that so many drafts, at least one, add to a step of that many rows; 0: not known.
  double AddedSeconds(size_t decode_rows, size_t drafts) const;

 private:
  // Of steps with 2^i to 2^(i+1) - 1 drafts, the last point also of more: sums in which older steps
  // fade.
  struct Point {
    double seconds = 0;
    double drafts = 0;
    double steps = 0;
    double mean_drafts() const { return drafts / steps; }
    double mean_seconds() const { return seconds / steps; }
  };
  // Drafts do not cost the same each: the first rows of a product cost little where its weights
  // come from memory.
  struct Curve {
    std::array<Point, 12> points;
    size_t measured = 0;  // drafts that do not fade
    double At(double drafts) const;
    // Whether a number near it was measured, so that At says something of it.
    bool Covers(double drafts) const;
  };
  const Curve& CurveOf(size_t decode_rows) const;
  DraftLoss LossOf(const DecodeStep& step) const;
  void LearnCurve(const DecodeStep& step);
  bool MeasuresAlone(size_t decode_rows) const;
  bool MustWait(size_t decode_rows);
  bool OneMayPay(std::span<const DraftStanding> rows) const;
  std::vector<uint32_t> UnknownMany(std::span<const DraftProspect> rows) const;
  std::vector<uint32_t> CountsFor(std::span<const DraftProspect> rows);
  std::vector<uint32_t> PayingDrafts(std::span<const DraftProspect> rows) const;

  const StepCost& cost_;
  std::array<Curve, 24> curves_;  // of steps of 2^i to 2^(i+1) - 1 rows
  size_t since_alone_ = 0;        // steps with drafts since one without
  size_t refused_ = 0;            // steps since the last with drafts in which drafts did not pay
  size_t try_after_;              // so many of them
  size_t in_vain_ = 0;            // looks since the last drafts, and steps that waited for the next
  size_t waited_ = 0;             // steps of many rows in which a few drafts were not measured
  double read_seconds_ = 0;       // of making the drafts chosen last: to read contexts
  double making_seconds_ = 0;     // the same: the rest, as the drafters expect it
  DraftBudget budget_ = DraftBudget::OfServer();
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_DRAFT_CHOICE_H_
