// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/draft_choice.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <utility>

namespace rivulet {
namespace {

// What is left of an older step's weight in a draft's cost; how far a step's part in it may be from
// what was expected, as a multiple of that; and the least part of a step that a draft can be.
constexpr double kFading = 0.9;
constexpr double kFarthest = 3.0;
constexpr double kLeastPart = 0.002;

// Drafts of a step whose cost is not known yet, the least chance of each, and how many have to be
// measured.
constexpr size_t kFirstDrafts = 2;
constexpr float kFirstChance = 0.3f;
constexpr size_t kFirstMeasured = 6;

// In a step of so many rows a few drafts cost as much as many: on a GPU, it is no longer one of
// decode rows alone. So it is measured with many, so many a row, where each row's guesses are right
// so often that it gains kManyGain from them, and the drafts promise a token a row and more. Where
// no row is like that, a few are measured after kFirstTry steps.
constexpr size_t kManyRows = 4;
constexpr size_t kManyDrafts = 3;
constexpr double kManyGain = 2;
constexpr float kManyChance = 0.5f;

// A draft has to promise so many times what it costs, since both are estimates.
constexpr double kMargin = 1.1;
// What no gain of a row's own makes up for.
constexpr double kMostLoss = 1.03;

// So many steps with drafts, then one without, which measures what the rows take alone.
constexpr size_t kMeasureEvery = 32;
// After so many steps in which drafts did not pay some are checked all the same: what they cost may
// have changed, or a disturbed measurement said too much. Twice as many after each such time.
constexpr size_t kFirstTry = 64;
constexpr size_t kLastTry = 1024;
constexpr size_t kTriedDrafts = 2;

// What a step with drafts, or making them, may have taken at most, as a multiple of what was
// expected: more was a disturbance, which steps without drafts have too.
constexpr double kMostTaken = 4.0;

size_t PointOf(size_t decode_rows, size_t points) {
  return std::min<size_t>(std::bit_width(decode_rows) - 1, points - 1);
}

// Hands out drafts one by one, the most likely first.
class Auction {
 public:
  explicit Auction(std::span<const DraftProspect> rows) : rows_(rows), counts_(rows.size()) {
    for (size_t row = 0; row < rows.size(); ++row) Offer(row, 1.0);
  }

  bool empty() const { return offers_.empty(); }
  double chance() const { return offers_.top().first; }
  double own_seconds() const {
    const DraftProspect& row = rows_[offers_.top().second];
    const bool first = counts_[offers_.top().second] == 0;
    return row.seconds_a_draft + (first ? row.seconds_before / DraftBudget::kPaysWithin : 0);
  }
  void Take() {
    const auto [chance, row] = offers_.top();
    offers_.pop();
    ++counts_[row];
    Offer(row, chance);
  }
  const std::vector<uint32_t>& counts() const { return counts_; }

 private:
  // The row's next draft, if those before it are right with this chance.
  void Offer(size_t row, double before) {
    if (counts_[row] >= rows_[row].count) return;
    offers_.push({before * rows_[row].chances[counts_[row]], row});
  }

  std::span<const DraftProspect> rows_;
  std::vector<uint32_t> counts_;
  std::priority_queue<std::pair<double, size_t>> offers_;
};

double LeastGain(std::span<const DraftProspect> rows) {
  double least = kMostDrafts + 1;
  for (const DraftProspect& row : rows) least = std::min(least, row.gain);
  return least;
}

bool AllEmpty(std::span<const DraftProspect> rows) {
  return std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.count == 0; });
}

// So many more tokens the counted drafts are expected to give.
double ExpectedTokens(std::span<const DraftProspect> rows, const std::vector<uint32_t>& counts) {
  double tokens = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    double chance = 1;
    for (size_t i = 0; i < counts[row]; ++i) tokens += chance *= rows[row].chances[i];
  }
  return tokens;
}

// The `most` likeliest.
std::vector<uint32_t> FirstDrafts(std::span<const DraftProspect> rows, size_t most,
                                  double least_chance) {
  Auction auction(rows);
  for (size_t taken = 0; taken < most; ++taken) {
    if (auction.empty() || auction.chance() < least_chance) break;
    auction.Take();
  }
  return auction.counts();
}

}  // namespace

DraftChoice::DraftChoice(const StepCost& cost) : cost_(cost), try_after_(kFirstTry) {}

void DraftChoice::Observe(const DecodeStep& step) {
  since_alone_ = step.drafts == 0 ? 0 : since_alone_ + 1;
  if (step.rows == 0 || step.seconds <= 0) return;
  NoteCost(step);
  if (step.drafts > 0) LearnCurve(step);
}

// What the step took longer, or less, than steps without drafts that give as many tokens.
void DraftChoice::NoteCost(const DecodeStep& step) {
  const double alone = cost_.DecodeSeconds(step.rows);
  if (step.drafts == 0 || alone <= 0) return budget_.NoteStep(0, 0);
  const double read = std::min(read_seconds_, step.draft_seconds);
  const double expected = alone + std::max(AddedSeconds(step.rows, step.drafts), alone);
  const double making =
      std::min(step.draft_seconds - read, kMostTaken * std::max(making_seconds_, alone));
  const double seconds = std::min(step.seconds, kMostTaken * expected) + making;
  const double gained = static_cast<double>(step.right) / static_cast<double>(step.rows);
  budget_.NoteStep(seconds / alone - 1 - gained, read / alone);
}

// A disturbance only lengthens steps, so one that took far less than expected counts more.
void DraftChoice::LearnCurve(const DecodeStep& step) {
  const double alone = cost_.DecodeSeconds(step.rows), count = static_cast<double>(step.drafts);
  double added = std::max(step.seconds - alone, kLeastPart * count * alone);
  Curve& curve = curves_[PointOf(step.rows, curves_.size())];
  const double expected = curve.Covers(count) ? curve.At(count) : 0;
  Point& point = curve.points[PointOf(step.drafts, curve.points.size())];
  if (expected > 0) {
    added = std::clamp(added, expected / kFarthest, expected * kFarthest);
    if (point.steps == 0) point = {expected, count, 1};
    if (2 * added < expected) point = {};
  }
  point.seconds = kFading * point.seconds + added;
  point.drafts = kFading * point.drafts + count;
  point.steps = kFading * point.steps + 1;
  curve.measured += step.drafts;
}

// Between the points, and before the first and behind the last in proportion; 0: there is none.
double DraftChoice::Curve::At(double drafts) const {
  double from = 0, from_seconds = 0;
  for (const Point& point : points) {
    if (point.steps == 0) continue;
    const double to = point.mean_drafts(), to_seconds = point.mean_seconds();
    if (drafts <= to) {
      return from_seconds + (drafts - from) / (to - from) * (to_seconds - from_seconds);
    }
    from = to;
    from_seconds = to_seconds;
  }
  return from == 0 ? 0 : from_seconds * drafts / from;
}

bool DraftChoice::Curve::Covers(double drafts) const {
  constexpr double kFarther = 4;  // than what was measured
  return std::any_of(points.begin(), points.end(), [&](const Point& point) {
    return point.steps > 0 && kFarther * point.mean_drafts() >= drafts;
  });
}

const DraftChoice::Curve& DraftChoice::CurveOf(size_t decode_rows) const {
  return curves_[PointOf(decode_rows, curves_.size())];
}

double DraftChoice::AddedSeconds(size_t decode_rows, size_t drafts) const {
  const Curve& curve = CurveOf(decode_rows);
  return curve.measured < kFirstMeasured ? 0 : curve.At(static_cast<double>(drafts));
}

// As many as give the most tokens a second.
std::vector<uint32_t> DraftChoice::PayingDrafts(std::span<const DraftProspect> rows) const {
  const double alone = cost_.DecodeSeconds(rows.size());
  const double most_seconds = (kMostLoss * LeastGain(rows) - 1) * alone;
  Auction auction(rows);
  size_t best = 0;
  double tokens = static_cast<double>(rows.size()), own_seconds = 0;
  double best_rate = tokens / alone;
  for (size_t drafts = 1; !auction.empty(); ++drafts) {
    tokens += auction.chance();
    own_seconds += auction.own_seconds();
    auction.Take();
    const double added = AddedSeconds(rows.size(), drafts) + own_seconds;
    const double rate = tokens / (alone + kMargin * added);
    if (added > most_seconds) break;
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = drafts;
  }
  return FirstDrafts(rows, best, /*least_chance=*/0);
}

bool DraftChoice::MeasuresAlone(size_t decode_rows) const {
  return !cost_.Measured(decode_rows) || since_alone_ >= kMeasureEvery;
}

std::vector<uint32_t> DraftChoice::Choose(std::span<const DraftProspect> rows) {
  auto counts = CountsFor(rows);
  read_seconds_ = making_seconds_ = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    if (counts[row] > 0) read_seconds_ += rows[row].seconds_before;
    making_seconds_ += counts[row] * rows[row].seconds_a_draft;
  }
  return counts;
}

// Many drafts in a step for which their cost is not known; none if they do not promise enough.
std::vector<uint32_t> DraftChoice::UnknownMany(std::span<const DraftProspect> rows) const {
  const std::vector<uint32_t> none(rows.size());
  if (rows.size() < kManyRows || LeastGain(rows) < kManyGain) return none;
  const double most = static_cast<double>(kManyDrafts * rows.size());
  if (CurveOf(rows.size()).Covers(most)) return none;
  auto counts = FirstDrafts(rows, kManyDrafts * rows.size(), kManyChance);
  return ExpectedTokens(rows, counts) < static_cast<double>(rows.size()) ? none : counts;
}

std::vector<uint32_t> DraftChoice::CountsFor(std::span<const DraftProspect> rows) {
  const std::vector<uint32_t> none(rows.size());
  if (AllEmpty(rows) || !budget_.open() || MeasuresAlone(rows.size())) return none;
  if (auto many = UnknownMany(rows); many != none) return many;
  if (AddedSeconds(rows.size(), 1) == 0) {
    if (rows.size() >= kManyRows && ++waited_ < kFirstTry) return none;
    return FirstDrafts(rows, kFirstDrafts, kFirstChance);
  }
  if (refused_ >= try_after_) {
    refused_ = 0;
    try_after_ = std::min(2 * try_after_, kLastTry);
    return FirstDrafts(rows, kTriedDrafts, kFirstChance);
  }
  auto counts = PayingDrafts(rows);
  const bool refused = counts == none;
  refused_ = refused ? refused_ + 1 : 0;
  if (!refused) try_after_ = kFirstTry;
  return counts;
}

}  // namespace rivulet
