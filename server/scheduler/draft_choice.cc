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
constexpr size_t kFirstDrafts = 4;
constexpr float kFirstChance = 0.3f;
constexpr size_t kFirstMeasured = 12;

// A draft has to promise so many times what it costs, since both are estimates.
constexpr double kMargin = 1.1;
// What no gain of a row's own makes up for.
constexpr double kMostLoss = 1.03;

// So many steps with drafts, then one without, which measures what the rows take alone.
constexpr size_t kMeasureEvery = 32;
// After so many steps in which drafts did not pay some are checked all the same: what they cost may
// have changed, or a disturbed measurement said too much.
constexpr size_t kTryEvery = 64;
constexpr size_t kTriedDrafts = 2;

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
  double own_seconds() const { return rows_[offers_.top().second].seconds_a_draft; }
  void Take() {
    const auto [chance, row] = offers_.top();
    offers_.pop();
    ++counts_[row];
    Offer(row, chance);
  }
  std::vector<uint32_t> counts() && { return std::move(counts_); }

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

std::vector<uint32_t> LikelyDrafts(std::span<const DraftProspect> rows, size_t most) {
  Auction auction(rows);
  for (size_t taken = 0; taken < most; ++taken) {
    if (auction.empty() || auction.chance() < kFirstChance) break;
    auction.Take();
  }
  return std::move(auction).counts();
}

// While the next draft gives more tokens a second than the step has so far.
std::vector<uint32_t> PayingDrafts(std::span<const DraftProspect> rows, double alone,
                                   double draft_seconds) {
  Auction auction(rows);
  double tokens = static_cast<double>(rows.size()), seconds = alone;
  const double most = alone * kMostLoss * LeastGain(rows);
  while (!auction.empty()) {
    const double added = draft_seconds + auction.own_seconds();
    const bool pays = auction.chance() * seconds > kMargin * tokens * added;
    if (!pays || seconds + added > most) break;
    tokens += auction.chance();
    seconds += added;
    auction.Take();
  }
  return std::move(auction).counts();
}

}  // namespace

void DraftChoice::Observe(size_t decode_rows, size_t drafts, double seconds) {
  since_alone_ = drafts == 0 ? 0 : since_alone_ + 1;
  if (drafts == 0 || decode_rows == 0 || seconds <= 0) return;
  const double alone = cost_.DecodeSeconds(decode_rows), count = static_cast<double>(drafts);
  double added = std::max(seconds - alone, kLeastPart * count * alone);
  Sums& sums = sums_[PointOf(decode_rows, sums_.size())];
  if (sums.drafts > 0) {
    const double expected = sums.seconds / sums.drafts * count;
    added = std::clamp(added, expected / kFarthest, expected * kFarthest);
  }
  sums.seconds = kFading * sums.seconds + added;
  sums.drafts = kFading * sums.drafts + count;
  sums.measured += drafts;
}

double DraftChoice::DraftSeconds(size_t decode_rows) const {
  if (decode_rows == 0) return 0;
  const Sums& sums = sums_[PointOf(decode_rows, sums_.size())];
  return sums.measured >= kFirstMeasured ? sums.seconds / sums.drafts : 0;
}

bool DraftChoice::MeasuresAlone(size_t decode_rows) const {
  return !cost_.Measured(decode_rows) || since_alone_ >= kMeasureEvery;
}

std::vector<uint32_t> DraftChoice::Choose(std::span<const DraftProspect> rows) {
  if (AllEmpty(rows) || MeasuresAlone(rows.size())) return std::vector<uint32_t>(rows.size());
  const double draft_seconds = DraftSeconds(rows.size());
  if (draft_seconds == 0) return LikelyDrafts(rows, kFirstDrafts);
  if (refused_ >= kTryEvery) {
    refused_ = 0;
    return LikelyDrafts(rows, kTriedDrafts);
  }
  auto counts = PayingDrafts(rows, cost_.DecodeSeconds(rows.size()), draft_seconds);
  const bool none = std::all_of(counts.begin(), counts.end(), [](uint32_t n) { return n == 0; });
  refused_ = none ? refused_ + 1 : 0;
  return counts;
}

}  // namespace rivulet
