// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bounds what drafts cost where they do not pay, also if much was expected of them. An account in
// steps without drafts: a step with drafts loses what it took longer than steps that give as many
// tokens, or gains what it took less. Each step earns kEarned, up to the credit that it begins
// with; only gains lift it further. Without credit no drafts are made, until some was earned again.
// So the first n steps lose at most n * kEarned, the first credit, what the last step with drafts
// lost, and what is still to be paid for reading; later ones may lose, beside that, what drafts
// have gained before.
//
// What it took to read a context for the first draft is paid for over the next steps: it is worth
// its time only if many drafts follow.
//
// The scheduler keeps one such account for all steps, and one for each row, of the steps that it
// was part of and of the tokens that its own drafts gave it: a row must not be slowed by drafts of
// others.
//
// Threading: none of its own; the scheduler's, on the engine thread.
#ifndef RIVULET_SERVER_SCHEDULER_DRAFT_BUDGET_H_
#define RIVULET_SERVER_SCHEDULER_DRAFT_BUDGET_H_

#include <algorithm>

namespace rivulet {

class DraftBudget {
 public:
  static constexpr double kEarned = 0.01;
  // Tokens within which reading a context has to pay.
  static constexpr double kPaysWithin = 64;
  // A row with more debt makes no drafts, whatever is expected of them.
  static constexpr double kMostDebt = 1;

  // Of all steps of a server, and of one row.
  static DraftBudget OfServer() { return {/*first=*/1.0, /*most=*/12}; }
  static DraftBudget OfRow() { return {/*first=*/0.5, /*most=*/12}; }

  bool open() const { return open_; }
  // Steps without drafts that it may lose.
  double credit() const { return credit_; }

  // A step, with drafts or without. `lost` and `read`: in steps without drafts; negative: gained.
  void NoteStep(double lost, double read) {
    to_pay_ += read;
    const double paid = to_pay_ / kPaysWithin;
    to_pay_ -= paid;
    const double earned = std::clamp(first_ - credit_, 0.0, kEarned);
    credit_ = std::min(most_, credit_ + earned - lost - paid);
    open_ = credit_ >= (open_ ? 0 : kReopens);
  }

 private:
  DraftBudget(double first, double most) : first_(first), most_(most), credit_(first) {}

  static constexpr double kReopens = 0.5;

  double first_;
  double most_;
  double credit_;
  double to_pay_ = 0;  // for contexts that were read
  bool open_ = true;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_DRAFT_BUDGET_H_
