// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Whether the model's own head runs behind the next step (StepPlan::head_follows), where that costs
// a device time. A session that was in a step without it gets no guesses any more, so the choice is
// made for many steps:
//
//   trial   kTrial steps in which the head ran. If drafts gave less in them than the head took,
//           it is left out,
//   pause   for kPause steps, or, after kShortestPause, until about half as many rows run as in the
//           trial. Then the next trial begins, with the sessions that are new then.
//
// So a head that never gives anything costs its part of a step in kTrial of kTrial + kPause steps.
// What it takes is measured: steps with it beside steps without. Until both are known for about so
// many rows, drafts have to give kSurely of a step, which is more than a head takes in models of
// four layers and more.
//
// Threading: none of its own; the scheduler's, on the engine thread.
#ifndef RIVULET_SERVER_SCHEDULER_HEAD_POLICY_H_
#define RIVULET_SERVER_SCHEDULER_HEAD_POLICY_H_

#include <array>
#include <cstddef>

namespace rivulet {

class HeadPolicy {
 public:
  static constexpr size_t kTrial = 256;
  static constexpr size_t kPause = 4096;
  static constexpr size_t kShortestPause = 1024;
  static constexpr double kSurely = 0.3;

  struct Step {
    size_t rows = 0;        // that decode
    bool alone = false;     // without prompts and drafts
    bool followed = false;  // StepResult::head_followed
    double seconds = 0;     // that it took; 0: not measured
    // Steps that drafts saved: the tokens that they gave a row, less what they lengthened the step.
    double saved = 0;
  };

  bool follows() const { return follows_; }
  void NoteStep(const Step& step);

 private:
  // A moving mean that one outlier cannot move far.
  struct Mean {
    double seconds = 0;
    size_t steps = 0;
    void Add(double sample);
  };
  struct Times {
    Mean with, without;
  };

  Times& TimesOf(size_t rows);
  double CostOf(size_t rows);
  void NoteTrial(const Step& step);
  void NotePause(const Step& step);
  void Begin(bool trial);

  std::array<Times, 24> times_;  // of steps of 2^i to 2^(i+1) - 1 rows
  bool follows_ = true;
  size_t steps_ = 0;       // of the trial or the pause
  double balance_ = 0;     // of the trial: steps that drafts saved, less those that the head took
  double rows_ = 0;        // a moving mean
  double trial_rows_ = 0;  // the same at the end of the last trial
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SCHEDULER_HEAD_POLICY_H_
