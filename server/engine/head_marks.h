// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which slots hold what the model's own head needs to guess: its state after every token before.
// On a device the head may be left out of a step (StepPlan::head_follows). What a session holds
// after such a step lacks the head's rows of these tokens for good.
//
// A mark for each base and each tail. Bases are written by folds alone and shared by reference, and
// tails are copied by StatePool::CopyTail, so that the marks stay right through forks, rewinds,
// kept positions and the prefix cache. Pages need none: a base is held with those before it.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_HEAD_MARKS_H_
#define RIVULET_SERVER_ENGINE_HEAD_MARKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/recurrence/state.h"

namespace rivulet {

class HeadMarks {
 public:
  HeadMarks(size_t fold_interval, size_t bases, size_t tails)
      : fold_interval_(fold_interval), bases_(bases), tails_(tails) {}

  // Whether the head has followed all tokens before the segment, in its slots.
  bool KnowsAllBefore(const Segment& segment) const {
    if (segment.position == 0) return true;
    const bool at_border = segment.position % fold_interval_ == 0;
    return at_border ? bases_[segment.base_in] : tails_[segment.tail];
  }

  // A step with the segment: with the head or without.
  void NoteStep(const Segment& segment, bool follows) {
    const bool knows = follows && KnowsAllBefore(segment);
    const size_t folds = FoldsIn(segment.position, segment.tokens, fold_interval_);
    for (size_t fold = 0; fold < folds; ++fold) bases_[segment.BaseAfter(fold)] = knows;
    tails_[segment.tail] = knows;
  }

  void CopyTail(uint32_t from, uint32_t to) { tails_[to] = tails_[from]; }

 private:
  size_t fold_interval_;
  std::vector<bool> bases_, tails_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_HEAD_MARKS_H_
