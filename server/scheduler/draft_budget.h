// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bounds what drafts cost where they do not pay, also if much was expected of them. An account in
// steps without drafts: a step with drafts loses what it took longer than steps that give as many
// tokens, or gains what it took less. Each step earns kEarned, up to a credit of kMostEarned;
// only gains lift it further, up to kMostCredit. Without credit no drafts are made, until some
// was earned again. So the first n steps of a server lose at most n * kEarned, kMostEarned, what
// the last step with drafts lost, and what is still to be paid for reading; later ones may lose,
// beside that, what drafts have gained before.
//
// What it took to read a context for the first draft is paid for over the next steps: it is worth
// its time only if many drafts follow.
//
// Threading: none of its own; the scheduler's, on the engine thread.
#ifndef RIVULET_SERVER_SCHEDULER_DRAFT_BUDGET_H_
#define RIVULET_SERVER_SCHEDULER_DRAFT_BUDGET_H_

#include <algorithm>

namespace rivulet {

class DraftBudget {
 public:
  static constexpr double kEarned = 0.01;
  static constexpr double kMostEarned = 1.0;
  static constexpr double kMostCredit = 12;
  // Tokens within which reading a context has to pay.
  static constexpr double kPaysWithin = 64;

  bool open() const { return open_; }

  // A step, with drafts or without. `lost` and `read`: in steps without drafts; negative: gained.
  void NoteStep(double lost, double read) {
    to_pay_ += read;
    const double paid = to_pay_ / kPaysWithin;
    to_pay_ -= paid;
    const double earned = std::clamp(kMostEarned - credit_, 0.0, kEarned);
    credit_ = std::min(kMostCredit, credit_ + earned - lost - paid);
    open_ = credit_ >= (open_ ? 0 : kReopens);
  }

 private:
  static constexpr double kReopens = 0.5;

  double credit_ = kMostEarned;
  double to_pay_ = 0;  // for contexts that were read
  bool open_ = true;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_DRAFT_BUDGET_H_
