// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/step_cost.h"

#include <algorithm>

namespace rivulet {
namespace {

// What a new sample moves the mean by, and how far from it a sample may be.
constexpr double kWeight = 0.2;
constexpr double kFarthest = 2.0;

// While prompts run, every so many steps are measured without them: what decode rows take may
// change (another process, a hotter machine).
constexpr size_t kMeasureEvery = 16;
// The first estimate is the least of so many steps: a single step may include a first touch of
// memory or a preempted thread, and a first estimate that is far off stays wrong for long.
constexpr size_t kFirstMeasured = 2;

// What is left of an older step's weight in a prompt's cost; how far a step's part in it may be
// from what was expected, as a multiple of that.
constexpr double kFading = 0.9;
constexpr double kFarthestPrompt = 3.0;
constexpr double kLeastPart = 0.05;

// A step of prompts alone may take so many times what a step takes that processes one token: where
// the weights alone take longer to read than PlanLimits::prompt_seconds, fewer tokens would not
// make it shorter. More than twice, or pieces of one chunk would never grow into pieces of two.
constexpr double kShortestSteps = 3.0;

// Chunks of the first pieces, before anything is known.
constexpr size_t kFirstBesideDecode = 1;
constexpr size_t kFirstAlone = 4;

}  // namespace

void StepCost::Mean::Add(double sample) {
  if (value == 0) {
    value = sample;
    return;
  }
  const double near = std::clamp(sample, value / kFarthest, value * kFarthest);
  value += kWeight * (near - value);
}

void StepCost::Observe(size_t decode_rows, size_t prompt_tokens, double seconds) {
  if (decode_rows > 0 && prompt_tokens == 0) {
    steps_since_measured_ = 0;
    return AddDecode(decode_rows, seconds);
  }
  if (decode_rows > 0) ++steps_since_measured_;
  if (seconds <= 0) return;
  PromptCost& cost = decode_rows > 0 ? beside_decode_ : alone_;
  cost.Add(seconds, seconds - DecodeSeconds(decode_rows), prompt_tokens);
  // One token is one token: a prompt's takes what a decode row does, but for its logits.
  if (decode_rows == 0 && prompt_tokens == 1) AddDecode(1, seconds);
}

void StepCost::AddDecode(size_t decode_rows, double seconds) {
  DecodePoint& point = decode_[PointOf(decode_rows, decode_.size())];
  ++point.measured;
  if (seconds <= 0) return;
  point.rows.Add(static_cast<double>(decode_rows));
  const bool starts_low = point.measured <= kFirstMeasured && seconds < point.seconds.value;
  if (starts_low) point.seconds.value = seconds;
  point.seconds.Add(seconds);
}

void StepCost::PromptCost::Add(double step_seconds, double added_seconds, size_t step_tokens) {
  last_tokens = static_cast<double>(step_tokens);
  const double expected = TokenSeconds() * last_tokens;
  if (expected > 0) {
    const double farthest = kFarthestPrompt * expected;
    added_seconds = std::clamp(added_seconds, -farthest, farthest);
  }
  tokens = kFading * tokens + last_tokens;
  // Tokens that seem free by noise are counted as a part of their step all the same: from nothing
  // the cost would never find back, while the pieces doubled.
  seconds =
      std::max(kFading * seconds + added_seconds, kLeastPart * step_seconds / last_tokens * tokens);
}

double StepCost::DecodeSeconds(size_t decode_rows) const {
  if (decode_rows == 0) return 0;
  const double rows = static_cast<double>(decode_rows);
  const DecodePoint* below = nullptr;  // the nearest points measured on either side
  const DecodePoint* above = nullptr;
  for (const DecodePoint& point : decode_) {
    if (point.seconds.value == 0) continue;
    if (point.rows.value <= rows) below = &point;
    if (point.rows.value > rows && above == nullptr) above = &point;
  }
  if (below == nullptr && above == nullptr) return 0;
  // With one side alone the answer is rather too small: prompts then get less.
  if (above == nullptr) return below->seconds.value;
  if (below == nullptr) return above->seconds.value * rows / above->rows.value;
  const double part = (rows - below->rows.value) / (above->rows.value - below->rows.value);
  return below->seconds.value + part * (above->seconds.value - below->seconds.value);
}

double StepCost::Budget(const PromptCost& cost, double seconds, size_t first_tokens) {
  const double first = static_cast<double>(first_tokens);
  if (cost.tokens == 0 || seconds <= 0) return first;
  // What a token takes falls with the number of them, and is known for the last number alone.
  return std::min(seconds / cost.TokenSeconds(), std::max(2 * cost.last_tokens, first));
}

bool StepCost::MustMeasure(size_t decode_rows) const {
  return !Measured(decode_rows) || steps_since_measured_ >= kMeasureEvery;
}

bool StepCost::Measured(size_t decode_rows) const {
  return decode_[PointOf(decode_rows, decode_.size())].measured >= kFirstMeasured;
}

uint32_t StepCost::PromptTokens(size_t decode_rows, size_t prompts,
                                const PlanLimits& limits) const {
  double tokens = 0;
  if (decode_rows == 0) {
    const double seconds = std::max(limits.prompt_seconds, kShortestSteps * DecodeSeconds(1));
    tokens = Budget(alone_, seconds, kFirstAlone * fold_interval_);
  } else if (MustMeasure(decode_rows)) {
    return 0;
  } else {
    const PromptCost& cost = beside_decode_.tokens > 0 ? beside_decode_ : alone_;
    const double equal = static_cast<double>(prompts) / static_cast<double>(decode_rows);
    const double share = std::clamp(equal, limits.prompt_share, limits.most_prompt_share);
    tokens = Budget(cost, share * DecodeSeconds(decode_rows), kFirstBesideDecode * fold_interval_);
    // A prompt token costs no more than a decode row, which needs logits too. So half as many are
    // safe even after a disturbed measurement, and no prompt starves.
    tokens = std::max(tokens, static_cast<double>(decode_rows) / 2);
  }
  return static_cast<uint32_t>(
      std::clamp<double>(tokens, 1, static_cast<double>(limits.max_prompt_tokens)));
}

}  // namespace rivulet
