// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/step_cost.h"

#include <algorithm>
#include <bit>

#include "kernels/recurrence/state.h"

namespace rivulet {
namespace {

// What a new sample moves the mean by, and how far from it a sample may be.
constexpr double kWeight = 0.2;
constexpr double kFarthest = 2.0;

// While prompts run, every so many steps are measured without them: what decode rows take may
// change (another process, a hotter machine).
constexpr size_t kMeasureEvery = 64;

// The first pieces, before anything is known: one chunk beside decode rows, four alone.
constexpr double kFirstBesideDecode = kFoldInterval;
constexpr double kFirstAlone = 4 * kFoldInterval;

size_t PointOf(size_t decode_rows, size_t points) {
  return std::min<size_t>(std::bit_width(decode_rows) - 1, points - 1);
}

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
    DecodePoint& point = decode_[PointOf(decode_rows, decode_.size())];
    point.tried = true;
    steps_since_measured_ = 0;
    if (seconds <= 0) return;
    point.rows.Add(static_cast<double>(decode_rows));
    point.seconds.Add(seconds);
    return;
  }
  if (decode_rows > 0) ++steps_since_measured_;
  if (seconds <= 0) return;
  PromptCost& cost = decode_rows > 0 ? beside_decode_ : alone_;
  cost.last_tokens = static_cast<double>(prompt_tokens);
  // Even tokens that seem free (noise) take something.
  const double added = std::max(seconds - DecodeSeconds(decode_rows), seconds * 0.01);
  cost.token_seconds.Add(added / cost.last_tokens);
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

uint32_t StepCost::Budget(const PromptCost& cost, double seconds, double first_tokens,
                          const PlanLimits& limits) {
  double tokens = first_tokens;
  if (cost.token_seconds.value > 0 && seconds > 0) {
    // What a token takes falls with the number of them, and is known for the last number alone.
    tokens =
        std::min(seconds / cost.token_seconds.value, std::max(2 * cost.last_tokens, first_tokens));
  }
  return static_cast<uint32_t>(
      std::clamp<double>(tokens, 1, static_cast<double>(limits.max_prompt_tokens)));
}

bool StepCost::MustMeasure(size_t decode_rows) const {
  return !decode_[PointOf(decode_rows, decode_.size())].tried ||
         steps_since_measured_ >= kMeasureEvery;
}

uint32_t StepCost::PromptTokens(size_t decode_rows, const PlanLimits& limits) const {
  if (decode_rows == 0) return Budget(alone_, limits.prompt_seconds, kFirstAlone, limits);
  if (MustMeasure(decode_rows)) return 0;
  const bool known = beside_decode_.token_seconds.value > 0;
  return Budget(known ? beside_decode_ : alone_, limits.prompt_share * DecodeSeconds(decode_rows),
                kFirstBesideDecode, limits);
}

}  // namespace rivulet
