// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Session>> Session::Create(StatePool& states) {
  std::unique_ptr<Session> session = CreateAtRest(states, std::make_shared<TokenLedger>());
  RIVULET_RETURN_IF_ERROR(session->Wake());
  return session;
}

std::unique_ptr<Session> Session::CreateAtRest(StatePool& states,
                                               std::shared_ptr<TokenLedger> ledger) {
  return std::unique_ptr<Session>(new Session(states, TokenSequence(std::move(ledger)),
                                              std::make_shared<TokenCounts>(), /*counted=*/0));
}

std::unique_ptr<Session> Session::CreateFrom(StatePool& states, std::shared_ptr<TokenLedger> ledger,
                                             std::shared_ptr<StatePoint> point,
                                             std::span<const uint32_t> tokens) {
  RIVULET_CHECK(tokens.size() == point->position, "the state is that of other tokens");
  std::unique_ptr<Session> session = CreateAtRest(states, std::move(ledger));
  session->Append(tokens);
  session->position_ = point->position;
  session->point_ = std::move(point);
  return session;
}

Session::Session(StatePool& states, TokenSequence tokens, std::shared_ptr<TokenCounts> counts,
                 uint64_t counted)
    : states_(states),
      segment_pages_(states.capacity().pages.size()),
      tokens_(std::move(tokens)),
      token_counts_(std::move(counts)),
      counted_(counted) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Fork() const {
  RIVULET_CHECK(!segment_planned(), "forks while a segment is planned");
  std::unique_ptr<Session> fork(new Session(states_, tokens_, token_counts_, counted_));
  fork->position_ = position_;
  if (resting()) {
    fork->point_ = point_;
    RIVULET_RETURN_IF_ERROR(fork->Wake());
  } else {
    RIVULET_ASSIGN_OR_RETURN(fork->tail_, SlotHandle::Acquire(states_.tails()));
    fork->base_ = base_.Share();
    for (const PageTable& table : page_tables_) fork->page_tables_.push_back(table.Fork());
  }
  if (tail_.held()) states_.CopyTail(tail_.slot(), fork->tail_.slot());
  return fork;
}

absl::StatusOr<std::unique_ptr<Session>> Session::ForkAt(uint64_t tokens, bool with_borders) const {
  RIVULET_CHECK(resting(), "a session that is awake has no point to share");
  RIVULET_RETURN_IF_ERROR(CheckReaches(tokens));
  std::unique_ptr<Session> fork(new Session(states_, tokens_, token_counts_, counted_));
  fork->point_ = LatestPoint(tokens);
  fork->position_ = fork->point_ == nullptr ? 0 : fork->point_->position;
  for (const KeptPosition& kept : kept_) {
    if (kept.tokens <= tokens) fork->kept_.push_back(kept);
  }
  for (const auto& border : borders_) {
    if (with_borders && border->position < tokens) fork->borders_.push_back(border);
  }
  if (tokens == tokens_.size()) return fork;
  fork->tokens_.Truncate(tokens);
  fork->token_counts_ = CountsOf(tokens);
  fork->counted_ = tokens;
  return fork;
}

// Of the first tokens: counted, or taken from those of all, whichever is less work.
std::shared_ptr<TokenCounts> Session::CountsOf(uint64_t tokens) const {
  const uint64_t rest = tokens_.size() - tokens;
  const bool counts_rest = rest < tokens;
  TokenCounts counts;
  const uint64_t begin = counts_rest ? tokens : 0, end = counts_rest ? tokens_.size() : tokens;
  for (uint64_t i = begin; i < end; ++i) counts.Add(tokens_[i]);
  if (counts_rest) counts = token_counts_->Without(counts);
  return std::make_shared<TokenCounts>(std::move(counts));
}

absl::Status Session::CheckReaches(uint64_t tokens) const {
  if (tokens > tokens_.size()) {
    return absl::OutOfRangeError(absl::StrCat(
        "position ", tokens, " is in the future: the session holds ", tokens_.size(), " tokens"));
  }
  const uint64_t oldest = kept_.empty() ? tokens_.size() : kept_.front().tokens;
  if (tokens >= oldest) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("position ", tokens, " is before the oldest one that is kept, ", oldest,
                   " (--keep-positions and --state-memory set how many are); begin another session "
                   "and send its context"));
}

void Session::Rest() {
  RIVULET_CHECK(!resting() && !segment_planned(), "rests while it runs");
  CountTokens();  // ForkAt, on any thread, needs them
  auto point = std::make_shared<StatePoint>();
  point->position = Border(position_);
  // The point takes its place.
  if (!borders_.empty() && borders_.back()->position == point->position) borders_.pop_back();
  point->base = std::move(base_);
  base_ = SlotHandle();
  point->pages = std::exchange(page_tables_, {});
  point_ = std::move(point);
}

std::shared_ptr<StatePoint> Session::SharePoint() const {
  RIVULET_CHECK(!segment_planned(), "shares its state while a segment is planned");
  if (Border(position_) == 0) return nullptr;
  if (resting()) return point_;
  auto point = std::make_shared<StatePoint>();
  point->position = Border(position_);
  point->base = base_.Share();
  for (const PageTable& table : page_tables_) point->pages.push_back(table.Fork());
  return point;
}

absl::Status Session::Wake() {
  RIVULET_CHECK(resting(), "wakes a session that is awake");
  SlotHandle base, tail;
  if (!tail_.held()) {
    RIVULET_ASSIGN_OR_RETURN(tail, SlotHandle::Acquire(states_.tails()));
  }
  if (point_ == nullptr) {
    RIVULET_ASSIGN_OR_RETURN(base, SlotHandle::Acquire(states_.bases()));
  }
  std::vector<PageTable> pages;
  if (point_ == nullptr) {
    const std::vector<PageCapacity>& kinds = states_.capacity().pages;
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      pages.emplace_back(kinds[kind].kind, states_.pages(kind));
    }
  } else if (holds_point_alone()) {
    base = std::move(point_->base);
    pages = std::move(point_->pages);
  } else {
    base = point_->base.Share();
    for (const PageTable& table : point_->pages) pages.push_back(table.Fork());
  }
  if (tail.held()) tail_ = std::move(tail);
  base_ = std::move(base);
  page_tables_ = std::move(pages);
  point_ = nullptr;
  return absl::OkStatus();
}

uint32_t Session::missing_bases() const {
  if (!resting()) return base_.shared() ? 1 : 0;
  return holds_point_alone() && !point_->base.shared() ? 0 : 1;
}

uint64_t Session::Border(uint64_t tokens) const {
  return tokens - tokens % states_.capacity().fold_interval;
}

void Session::Keep(size_t most, Notes notes) {
  RIVULET_CHECK(resting(), "keeps a position while it runs");
  if (!kept_.empty() && kept_.back().tokens == tokens_.size()) kept_.pop_back();
  if (most > 0) kept_.push_back({tokens_.size(), point_, std::move(notes)});
  while (kept_.size() > most) DropKept(KeptStates::kOldestPosition, 1);
}

void Session::KeepStart() {
  RIVULET_CHECK(resting() && kept_.empty() && borders_.empty(), "keeps the start of a later turn");
  kept_.push_back({0, nullptr, nullptr});
  if (point_ != nullptr) borders_.push_back(point_);
}

// Nothing goes back to a border before the oldest position.
size_t Session::DropKept(KeptStates what, size_t most) {
  if (what == KeptStates::kBorder) {
    const size_t dropped = std::min(most, borders_.size());
    ThinBorders(dropped);
    return dropped;
  }
  if (kept_.empty()) return 0;
  kept_.erase(kept_.begin());
  const uint64_t oldest = kept_.empty() ? tokens_.size() : kept_.front().tokens;
  std::erase_if(borders_, [&](const auto& border) { return border->position < oldest; });
  return 1;
}

bool Session::has_new_border() const {
  if (kept_.empty()) return false;
  const StatePoint* const turn = kept_.back().point.get();
  uint64_t last = turn == nullptr ? 0 : turn->position;
  if (!borders_.empty()) last = std::max(last, borders_.back()->position);
  return Border(position_ + planned_) > last;
}

void Session::KeepBorder(size_t most) {
  RIVULET_CHECK(has_new_border() && most > 0, "keeps a border twice, or none");
  borders_.push_back(SharePoint());
  if (borders_.size() > most) ThinBorders(borders_.size() - most);
}

size_t Session::TakeBorderBack() {
  borders_.pop_back();
  if (borders_.empty()) return 1;
  ThinBorders(1);
  return 2;
}

size_t Session::BordersWithin(size_t count, uint64_t every) const {
  const uint64_t begin = position_ + planned_, last = Border(begin + count);
  return every == 0 || last <= begin ? 0 : (last - 1) / every - begin / every;
}

// Pages that a segment takes and gives back remain, and those of the session become shared.
uint64_t Session::PagesOfBorders(size_t kind, size_t count, uint64_t tokens) const {
  const PageKind& pages = states_.capacity().pages[kind].kind;
  if (!pages.fenwick() && pages.window == 0) return 0;
  const size_t folds = FoldsIn(position_, count, pages.fold_interval);
  return folds + MissingPagesInFork(kind, tokens) - MissingPages(kind, tokens);
}

// Forgets so many, each time the one that leaves the smallest gap for its distance from the end.
void Session::ThinBorders(size_t count) {
  const auto gap = [&](size_t i) {
    const StatePoint* const first = kept_.empty() ? nullptr : kept_.front().point.get();
    const uint64_t oldest = first == nullptr ? 0 : first->position;
    const uint64_t before = i == 0 ? oldest : borders_[i - 1]->position;
    const uint64_t after = i + 1 == borders_.size() ? position_ : borders_[i + 1]->position;
    const uint64_t distance = position_ - borders_[i]->position + states_.capacity().fold_interval;
    return static_cast<double>(after - before) / static_cast<double>(distance);
  };
  if (count == borders_.size()) return borders_.clear();
  for (; count > 0; --count) {
    size_t least = 0;
    double least_gap = gap(0);
    for (size_t i = 1; i < borders_.size(); ++i) {
      const double other = gap(i);
      if (other < least_gap) least = i, least_gap = other;
    }
    borders_.erase(borders_.begin() + static_cast<ptrdiff_t>(least));
  }
}

// The last border whose state is held and that is before the last of the first `tokens` tokens,
// which a turn without a prompt begins with.
std::shared_ptr<StatePoint> Session::LatestPoint(uint64_t tokens) const {
  std::shared_ptr<StatePoint> latest;
  ForEachPoint([&](const std::shared_ptr<StatePoint>& point) {
    if (point->position >= tokens) return;
    if (latest == nullptr || point->position > latest->position) latest = point;
  });
  return latest;
}

const TokenCounts& Session::token_counts() {
  CountTokens();
  return *token_counts_;
}

void Session::CountTokens() {
  if (counted_ == tokens_.size()) return;
  if (token_counts_.use_count() > 1) token_counts_ = std::make_shared<TokenCounts>(*token_counts_);
  for (; counted_ < tokens_.size(); ++counted_) token_counts_->Add(tokens_[counted_]);
}

void Session::Append(uint32_t token) { Append(std::span(&token, 1)); }

void Session::Append(std::span<const uint32_t> tokens) {
  tokens_.Append(tokens);
  if (resting()) CountTokens();
}

absl::StatusOr<Segment> Session::PlanSegment(size_t first_token, size_t count, BorderRule borders) {
  RIVULET_CHECK(count > 0 && count <= pending(), "plans more tokens than are pending");
  RIVULET_CHECK(borders.every == 0 || states_.capacity().fold_bases, "cannot keep these borders");
  return Plan(first_token, count, /*keep_base=*/false, borders);
}

absl::StatusOr<Segment> Session::PlanPromised(size_t first_token) {
  RIVULET_CHECK(pending() == 0, "a token is promised while others are pending");
  if (!MayPromise()) return absl::ResourceExhaustedError("this state cannot run ahead here");
  const bool folds = PromiseFolds();
  auto segment = Plan(first_token, 1, /*keep_base=*/true);
  if (segment.ok()) segment->guesses = folds ? 0 : 1;
  return segment;
}

bool Session::PromiseFolds() const {
  return Folds(position_ + planned_, 1, states_.capacity().fold_interval);
}

absl::StatusOr<Segment> Session::PlanDrafts(size_t first_token, size_t drafts) {
  RIVULET_CHECK(pending() == 1 && drafts <= MostDrafts(), "plans drafts that fold, or after none");
  auto segment = Plan(first_token, 1 + drafts, /*keep_base=*/false);
  if (segment.ok()) segment->guesses = drafts;
  return segment;
}

// The pending token may fold: it is right.
size_t Session::MostDrafts() const {
  if (states_.capacity().running_tail) return 0;
  const size_t interval = states_.capacity().fold_interval;
  return interval - 1 - (position_ + 1) % interval;
}

// Bases can be folded elsewhere and pages are taken before others are given back; but some tails
// and pages are overwritten.
bool Session::MayPromise() const {
  const StateCapacity& capacity = states_.capacity();
  if (capacity.running_tail) return false;
  if (!PromiseFolds()) return true;
  return std::none_of(capacity.pages.begin(), capacity.pages.end(), [](const PageCapacity& pages) {
    return pages.kind.rule == PageRule::kRewrittenFenwick;
  });
}

absl::StatusOr<Segment> Session::Plan(size_t first_token, size_t count, bool keep_base,
                                      BorderRule borders) {
  RIVULET_CHECK(!resting() && !segment_planned(),
                "plans a segment while one is planned, or at rest");
  Segment segment;
  segment.first_token = first_token;
  segment.tokens = count;
  segment.position = position_;
  segment.tail = tail_.slot();
  segment.base_in = segment.base_out = base_.slot();
  if (BordersWithin(count, borders.every) == 0) borders.every = 0;
  RIVULET_RETURN_IF_ERROR(PlanPages(count, borders.every > 0));
  segment.pages = segment_pages_.data();
  planned_ = count;
  if (Folds(position_, count, states_.capacity().fold_interval) && (keep_base || base_.shared())) {
    auto next = SlotHandle::Acquire(states_.bases());
    if (!next.ok()) {
      CancelSegment();
      return next.status();
    }
    next_base_ = *std::move(next);
    segment.base_out = next_base_.slot();
  }
  PlanBorders(segment, borders);
  return segment;
}

// A fold after one that is kept goes into the next one that is kept, or on in base_out.
void Session::PlanBorders(Segment& segment, BorderRule rule) {
  if (rule.every == 0) return;
  const uint64_t interval = states_.capacity().fold_interval;
  most_borders_ = rule.most;
  fold_bases_.assign(FoldsIn(position_, segment.tokens, interval), segment.base_out);
  planned_borders_.reserve(fold_bases_.size());
  for (size_t fold = 0; fold + 1 < fold_bases_.size(); ++fold) {
    const uint64_t position = Border(position_) + (fold + 1) * interval;
    if (position % rule.every != 0) continue;
    auto base = SlotHandle::Acquire(states_.bases());
    if (!base.ok()) break;
    fold_bases_[fold] = base->slot();
    planned_borders_.push_back({fold, position, *std::move(base)});
  }
  segment.fold_bases = fold_bases_.data();
}

// All kinds or none.
absl::Status Session::PlanPages(size_t count, bool keep_folds) {
  for (size_t kind = 0; kind < page_tables_.size(); ++kind) {
    const auto pages = page_tables_[kind].Plan(position_, count, keep_folds);
    if (!pages.ok()) {
      CancelSegment();
      return pages.status();
    }
    segment_pages_[kind] = *pages;
  }
  return absl::OkStatus();
}

uint64_t Session::pages(size_t kind) const {
  if (!resting()) return page_tables_[kind].pages();
  return point_ == nullptr ? 0 : point_->pages[kind].pages();
}

uint64_t Session::OwnPages(size_t kind) const {
  return holds_point_alone() ? point_->pages[kind].own_pages() : 0;
}

uint64_t Session::MissingPages(size_t kind, uint64_t tokens) const {
  // Borders are about to share them.
  if (!planned_borders_.empty()) return MissingPagesInFork(kind, tokens);
  if (!resting()) return page_tables_[kind].Missing(position_, tokens, kLongestSegment);
  if (point_ == nullptr)
    return MostPages(states_.capacity().pages[kind].kind, tokens, kLongestSegment);
  const PageTable& table = point_->pages[kind];
  return holds_point_alone() ? table.Missing(point_->position, tokens, kLongestSegment)
                             : table.MissingInFork(point_->position, tokens, kLongestSegment);
}

uint64_t Session::MissingPagesInFork(size_t kind, uint64_t tokens) const {
  if (!resting()) return page_tables_[kind].MissingInFork(position_, tokens, kLongestSegment);
  if (point_ == nullptr) return MissingPages(kind, tokens);
  return point_->pages[kind].MissingInFork(point_->position, tokens, kLongestSegment);
}

uint64_t Session::state_bytes() const {
  const StateCapacity& capacity = states_.capacity();
  uint64_t bytes = tail_.held() ? capacity.tail_bytes : 0;
  if (!resting() || point_ != nullptr) bytes += capacity.base_bytes;
  for (size_t kind = 0; kind < page_kinds(); ++kind) {
    bytes += pages(kind) * capacity.pages[kind].page_bytes;
  }
  return bytes;
}

// Pages that the next point holds, too, count there.
uint64_t Session::BytesBeside(const StatePoint& point, const StatePoint* next) const {
  const StateCapacity& capacity = states_.capacity();
  uint64_t bytes = capacity.base_bytes;
  for (size_t kind = 0; kind < page_kinds(); ++kind) {
    const PageTable& pages = point.pages[kind];
    const size_t shared = next == nullptr ? 0 : pages.SharedWith(next->pages[kind]);
    bytes += (pages.pages() - shared) * capacity.pages[kind].page_bytes;
  }
  return bytes;
}

// From the last one back, each beside the one behind it. Neighbours may have the same state. It
// takes no memory, so that a rewind cannot fail half done.
uint64_t Session::kept_bytes() const {
  uint64_t bytes = 0;
  const StatePoint* behind = point_.get();
  auto kept = kept_.rbegin();
  auto border = borders_.rbegin();
  for (;;) {
    while (kept != kept_.rend() && kept->point == nullptr) ++kept;
    const StatePoint* const position = kept == kept_.rend() ? nullptr : kept->point.get();
    const StatePoint* point = border == borders_.rend() ? nullptr : border->get();
    if (position == nullptr && point == nullptr) return bytes;
    if (point == nullptr || (position != nullptr && position->position >= point->position)) {
      point = position, ++kept;
    } else {
      ++border;
    }
    if (behind != nullptr && point->position == behind->position) continue;
    bytes += BytesBeside(*point, behind);
    behind = point;
  }
}

// Of a segment with drafts only the first token can fold.
void Session::CommitTokens(size_t count) {
  RIVULET_CHECK(count > 0 && count <= planned_, "commits tokens that were not planned");
  position_ += count;
  planned_ -= count;
  KeepPlannedBorders();
  for (PageTable& table : page_tables_) table.Commit();
  if (next_base_.held()) base_ = std::move(next_base_);
  next_base_ = SlotHandle();
}

void Session::KeepPlannedBorders() {
  if (planned_borders_.empty()) return;
  borders_.reserve(borders_.size() + planned_borders_.size());
  for (PlannedBorder& border : planned_borders_) {
    auto point = std::make_shared<StatePoint>();
    point->position = border.position;
    point->base = std::move(border.base);
    for (const PageTable& table : page_tables_) point->pages.push_back(table.ForkAt(border.fold));
    borders_.push_back(std::move(point));
  }
  planned_borders_.clear();
  if (borders_.size() > most_borders_) ThinBorders(borders_.size() - most_borders_);
}

void Session::CancelSegment() {
  planned_borders_.clear();
  for (PageTable& table : page_tables_) table.Cancel();
  planned_ = 0;
  next_base_ = SlotHandle();
}

}  // namespace rivulet
