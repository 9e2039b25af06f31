// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/scheduler/draft_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace rivulet {
namespace {

// What is left of an older step's weight in a draft's cost; how far a step's part in it may be from
// what was expected, as a multiple of that; and the least part of a step that a draft can be.
constexpr double kFading = 0.9;
constexpr double kFarthest = 3.0;
constexpr double kLeastPart = 0.002;

// Drafts of a step whose cost is not known yet, the least chance of each, and how many have to be
// measured: with many rows, all of them in one step.
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
// With fewer rows, looking for drafts takes no time worth saving. With more, after so many steps in
// which nothing was found that pays, only each eighth is looked at.
constexpr size_t kLooksAlways = 8;
constexpr size_t kLooksSeldomAfter = 8;
constexpr size_t kLooksEvery = 8;

// So many steps with drafts, then one without, which measures what the rows take alone.
constexpr size_t kMeasureEvery = 32;
// After so many steps in which drafts did not pay some are checked all the same: what they cost may
// have changed, or a disturbed measurement said too much. Twice as many after each such time.
constexpr size_t kFirstTry = 64;
constexpr size_t kLastTry = 1024;
constexpr size_t kTriedDrafts = 2;

// What a step with drafts, and making them, may have taken at most, as a multiple of what was
// expected; and the step, where nothing was expected yet, of one without. More was a disturbance.
// Steps without drafts have them too, and StepCost limits what one counts for nearly as strictly:
// otherwise drafts would seem to lose wherever other programs run.
constexpr double kMostTaken = 2.5;
constexpr double kMostTakenFirst = 8.0;

// A row's next draft, if those before it are right with this chance.
struct Offer {
  double chance = 0;
  size_t row = 0;
};

// The drafts of all rows, the likeliest first to within 1 / kRanks, those of a row in their order;
// less likely ones are left out. By counting: with many rows, a heap would take longer than the
// drafts save.
std::vector<Offer> Ranked(std::span<const DraftProspect> rows) {
  constexpr size_t kRanks = 256;
  const auto for_each = [&](const auto& take) {
    for (size_t row = 0; row < rows.size(); ++row) {
      double chance = 1;
      for (size_t i = 0; i < rows[row].count; ++i) {
        chance *= rows[row].chances[i];
        if (chance * kRanks < 1) break;
        take(static_cast<size_t>((1 - std::clamp(chance, 0.0, 1.0)) * (kRanks - 1)), chance, row);
      }
    }
  };
  std::array<size_t, kRanks + 1> begins = {};
  for_each([&](size_t rank, double, size_t) { ++begins[rank + 1]; });
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<Offer> ranked(begins.back());
  for_each([&](size_t rank, double chance, size_t row) { ranked[begins[rank]++] = {chance, row}; });
  return ranked;
}

// How many of the first `taken` are each row's.
std::vector<uint32_t> CountsOf(std::span<const Offer> ranked, size_t taken, size_t rows) {
  std::vector<uint32_t> counts(rows);
  for (const Offer& offer : ranked.first(taken)) ++counts[offer.row];
  return counts;
}

std::vector<DraftStanding> StandingsOf(std::span<const DraftProspect> rows) {
  std::vector<DraftStanding> standings;
  for (const DraftProspect& row : rows) standings.push_back(row.standing);
  return standings;
}

double LeastGain(std::span<const DraftStanding> rows) {
  double least = kMostDrafts + 1;
  for (const DraftStanding& row : rows) least = std::min(least, row.gain);
  return least;
}

double LeastCredit(std::span<const DraftProspect> rows) {
  double least = rows.front().standing.credit;
  for (const DraftProspect& row : rows) least = std::min(least, row.standing.credit);
  return least;
}

// Steps that the row may lose beside what its drafts give it; of a row that has lost much: nothing
// that it expects makes up for that.
double CreditOf(const DraftStanding& row) {
  const bool lost_much = row.credit < -DraftBudget::kMostDebt;
  return lost_much ? -std::numeric_limits<double>::infinity() : row.credit;
}

// By how many times the length of a step without drafts each row bears that a step is longer: its
// credit, and the tokens that it expects of its drafts.
class Bearable {
 public:
  explicit Bearable(std::span<const DraftProspect> rows) {
    for (const DraftProspect& row : rows) {
      const double credit = CreditOf(row.standing);
      lengths_.push_back(credit);
      double chance = 1, expected = 0;
      for (size_t i = 0; i < row.count; ++i) expected += chance *= row.chances[i];
      most_ = std::min(most_, credit + expected);
    }
  }
  void AddTokens(size_t row, double tokens) { lengths_[row] += tokens; }
  double now() const { return *std::min_element(lengths_.begin(), lengths_.end()); }
  // With all drafts of all rows.
  double most() const { return most_; }

 private:
  std::vector<double> lengths_;
  double most_ = std::numeric_limits<double>::infinity();
};

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
  const std::vector<Offer> ranked = Ranked(rows);
  size_t taken = 0;
  while (taken < std::min(most, ranked.size()) && ranked[taken].chance >= least_chance) ++taken;
  return CountsOf(ranked, taken, rows.size());
}

}  // namespace

DraftChoice::DraftChoice(const StepCost& cost) : cost_(cost), try_after_(kFirstTry) {}

std::optional<DraftLoss> DraftChoice::Observe(const DecodeStep& step) {
  since_alone_ = step.drafts == 0 ? 0 : since_alone_ + 1;
  if (step.rows == 0 || step.seconds <= 0) return std::nullopt;
  if (step.drafts > 0 && cost_.DecodeSeconds(step.rows) <= 0) return std::nullopt;
  const DraftLoss loss = LossOf(step);
  const double gained = static_cast<double>(step.right) / static_cast<double>(step.rows);
  budget_.NoteStep(loss.lengthened - gained, loss.read);
  if (step.drafts > 0) LearnCurve(step);
  return loss;
}

DraftLoss DraftChoice::LossOf(const DecodeStep& step) const {
  if (step.drafts == 0) return {};
  const double alone = cost_.DecodeSeconds(step.rows);
  const double read = std::min(read_seconds_, step.draft_seconds);
  const double added = AddedSeconds(step.rows, step.drafts);
  const double most = added > 0 ? kMostTaken * (alone + added) : kMostTakenFirst * alone;
  const double making =
      std::min(step.draft_seconds - read, kMostTaken * std::max(making_seconds_, alone));
  const double seconds = std::min(step.seconds, most) + making;
  return {seconds / alone - 1, read / alone};
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

// As many as give the most tokens a second. Of large numbers only some are looked at: what more
// drafts cost is not known so well.
std::vector<uint32_t> DraftChoice::PayingDrafts(std::span<const DraftProspect> rows) const {
  const double alone = cost_.DecodeSeconds(rows.size());
  Bearable bearable(rows);
  if (AddedSeconds(rows.size(), 1) > bearable.most() * alone) return CountsOf({}, 0, rows.size());
  const std::vector<Offer> ranked = Ranked(rows);
  std::vector<bool> has_draft(rows.size());
  size_t best = 0, next = 1;
  double tokens = static_cast<double>(rows.size()), own_seconds = 0;
  double best_rate = tokens / alone;
  for (size_t drafts = 1; drafts <= ranked.size(); ++drafts) {
    const auto [chance, row] = ranked[drafts - 1];
    tokens += chance;
    own_seconds += rows[row].seconds_a_draft;
    if (!has_draft[row]) own_seconds += rows[row].seconds_before / DraftBudget::kPaysWithin;
    has_draft[row] = true;
    bearable.AddTokens(row, chance);
    if (drafts < next && drafts < ranked.size()) continue;
    next = drafts + 1 + drafts / 16;
    const double added = AddedSeconds(rows.size(), drafts) + own_seconds;
    const double rate = tokens / (alone + kMargin * added);
    if (added > bearable.most() * alone) break;
    if (rate <= best_rate || added > bearable.now() * alone) continue;
    best_rate = rate;
    best = drafts;
  }
  return CountsOf(ranked, best, rows.size());
}

bool DraftChoice::MeasuresAlone(size_t decode_rows) const {
  return !cost_.Measured(decode_rows) || since_alone_ >= kMeasureEvery;
}

std::vector<uint32_t> DraftChoice::Choose(std::span<const DraftProspect> rows) {
  auto counts = CountsFor(rows);
  const bool none = std::all_of(counts.begin(), counts.end(), [](uint32_t n) { return n == 0; });
  in_vain_ = none ? in_vain_ + 1 : 0;
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
  if (rows.size() < kManyRows || LeastGain(StandingsOf(rows)) < kManyGain) return none;
  const double most = static_cast<double>(kManyDrafts * rows.size());
  if (CurveOf(rows.size()).Covers(most)) return none;
  auto counts = FirstDrafts(rows, kManyDrafts * rows.size(), kManyChance);
  return ExpectedTokens(rows, counts) < static_cast<double>(rows.size()) ? none : counts;
}

// Whether it is too early to measure a few drafts of so many rows.
bool DraftChoice::MustWait(size_t decode_rows) {
  return decode_rows >= kManyRows && ++waited_ < kFirstTry;
}

bool DraftChoice::Hopeless(std::span<const DraftStanding> rows) {
  if (rows.size() < kLooksAlways) return false;
  if (!budget_.open() || MeasuresAlone(rows.size())) return true;
  const bool known = AddedSeconds(rows.size(), 1) > 0;
  if (!known && LeastGain(rows) < kManyGain && MustWait(rows.size())) return true;
  const bool waits = in_vain_ >= kLooksSeldomAfter && in_vain_ % kLooksEvery != 0;
  in_vain_ += waits ? 1 : 0;
  if (!known) return waits;
  if (!waits && (refused_ >= try_after_ || OneMayPay(rows))) return false;
  ++refused_;
  return true;
}

// If as many guesses are right as were before.
bool DraftChoice::OneMayPay(std::span<const DraftStanding> rows) const {
  const double one = AddedSeconds(rows.size(), 1), alone = cost_.DecodeSeconds(rows.size());
  double tokens = 0, bearable = std::numeric_limits<double>::infinity();
  for (const DraftStanding& row : rows) {
    tokens += row.gain - 1;
    bearable = std::min(bearable, CreditOf(row) + row.gain - 1);
  }
  return tokens * alone > one * static_cast<double>(rows.size()) && one <= bearable * alone;
}

std::vector<uint32_t> DraftChoice::CountsFor(std::span<const DraftProspect> rows) {
  const std::vector<uint32_t> none(rows.size());
  if (AllEmpty(rows) || !budget_.open() || MeasuresAlone(rows.size())) return none;
  // What an attempt costs is not known, so each row must have got back what it has lost.
  const bool may_try = LeastCredit(rows) >= 0;
  if (auto many = UnknownMany(rows); may_try && many != none) return many;
  if (AddedSeconds(rows.size(), 1) == 0) {
    if (MustWait(rows.size()) || !may_try) return none;
    return FirstDrafts(rows, rows.size() < kManyRows ? kFirstDrafts : kFirstMeasured, kFirstChance);
  }
  if (may_try && refused_ >= try_after_) {
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
