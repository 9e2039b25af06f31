// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/head_policy.h"

#include <algorithm>

#include "server/scheduler/step_cost.h"

namespace rivulet {
namespace {

// What a new step moves a mean by, and the most that it counts for.
constexpr double kWeight = 1.0 / 16;
constexpr double kMostOfMean = 2;
// So many steps of each sort, and their means are known.
constexpr size_t kMeasured = 16;
// A fall of the rows to about a half, which a moving mean comes near to.
constexpr double kFall = 1.9;
// A head takes at least this part of a step, also where noise makes it seem less.
constexpr double kLeastCost = 0.01;

}  // namespace

void HeadPolicy::Mean::Add(double sample) {
  if (steps == 0) seconds = sample;
  seconds += kWeight * (std::min(sample, kMostOfMean * seconds) - seconds);
  ++steps;
}

HeadPolicy::Times& HeadPolicy::TimesOf(size_t rows) {
  return times_[PointOf(std::max<size_t>(rows, 1), times_.size())];
}

// Of a step, as a part of one without the head.
double HeadPolicy::CostOf(size_t rows) {
  const Times& times = TimesOf(rows);
  if (times.with.steps < kMeasured || times.without.steps < kMeasured) return kSurely;
  return std::clamp(times.with.seconds / times.without.seconds - 1, kLeastCost, kSurely);
}

void HeadPolicy::NoteStep(const Step& step) {
  if (step.alone && step.seconds > 0) {
    Times& times = TimesOf(step.rows);
    (step.followed ? times.with : times.without).Add(step.seconds);
  }
  if (step.rows > 0) rows_ += kWeight * (static_cast<double>(step.rows) - rows_);
  follows_ ? NoteTrial(step) : NotePause(step);
}

// Steps in which the head did not run cost nothing and say nothing.
void HeadPolicy::NoteTrial(const Step& step) {
  if (!step.followed) return;
  balance_ += step.saved - CostOf(step.rows);
  if (++steps_ < kTrial) return;
  trial_rows_ = rows_;
  Begin(balance_ >= 0);
}

void HeadPolicy::NotePause(const Step& step) {
  ++steps_;
  const bool fewer = step.rows > 0 && kFall * rows_ <= trial_rows_;
  if (steps_ >= kPause || (fewer && steps_ >= kShortestPause)) Begin(true);
}

void HeadPolicy::Begin(bool trial) {
  follows_ = trial;
  steps_ = 0;
  balance_ = 0;
}

}  // namespace rivulet
