// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/session/session.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Session>> Session::Create(StatePool& states) {
  RIVULET_ASSIGN_OR_RETURN(SlotHandle base, SlotHandle::Acquire(states.bases()));
  RIVULET_ASSIGN_OR_RETURN(SlotHandle tail, SlotHandle::Acquire(states.tails()));
  std::vector<PageTable> pages;
  const std::vector<PageCapacity>& kinds = states.capacity().pages;
  for (size_t i = 0; i < kinds.size(); ++i) pages.emplace_back(kinds[i].kind, states.pages(i));
  return std::unique_ptr<Session>(
      new Session(states, std::move(base), std::move(tail), std::move(pages)));
}

Session::Session(StatePool& states, SlotHandle base, SlotHandle tail,
                 std::vector<PageTable> page_tables)
    : states_(states),
      base_(std::move(base)),
      tail_(std::move(tail)),
      page_tables_(std::move(page_tables)),
      segment_pages_(page_tables_.size()) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Fork() const {
  RIVULET_CHECK(!segment_planned(), "forks while a segment is planned");
  RIVULET_ASSIGN_OR_RETURN(SlotHandle tail, SlotHandle::Acquire(states_.tails()));
  states_.CopyTail(tail_.slot(), tail.slot());
  std::vector<PageTable> pages;
  for (const PageTable& table : page_tables_) pages.push_back(table.Fork());
  std::unique_ptr<Session> fork(
      new Session(states_, base_.Share(), std::move(tail), std::move(pages)));
  fork->tokens_ = tokens_;
  fork->token_counts_ = token_counts_;
  fork->position_ = position_;
  return fork;
}

void Session::Append(uint32_t token) {
  tokens_.push_back(token);
  token_counts_.Add(token);
}

void Session::Append(std::span<const uint32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  token_counts_.Add(tokens);
}

absl::StatusOr<Segment> Session::PlanSegment(size_t first_token, size_t count) {
  RIVULET_CHECK(count > 0 && count <= pending(), "plans more tokens than are pending");
  return Plan(first_token, count, /*keep_base=*/false);
}

absl::StatusOr<Segment> Session::PlanPromised(size_t first_token) {
  RIVULET_CHECK(pending() == 0, "a token is promised while others are pending");
  if (!CanKeep(1)) return absl::ResourceExhaustedError("this state cannot run ahead here");
  return Plan(first_token, 1, /*keep_base=*/true);
}

// Bases can be folded elsewhere and pages are taken before others are given back; but some tails
// and pages are overwritten.
bool Session::CanKeep(size_t count) const {
  const StateCapacity& capacity = states_.capacity();
  if (capacity.running_tail) return false;
  if (!Folds(position_, count, capacity.fold_interval)) return true;
  return std::none_of(capacity.pages.begin(), capacity.pages.end(), [](const PageCapacity& pages) {
    return pages.kind.rule == PageRule::kRewrittenFenwick;
  });
}

absl::StatusOr<Segment> Session::Plan(size_t first_token, size_t count, bool keep_base) {
  RIVULET_CHECK(!segment_planned(), "plans a segment while one is planned");
  Segment segment;
  segment.first_token = first_token;
  segment.tokens = count;
  segment.position = position_;
  segment.tail = tail_.slot();
  segment.base_in = segment.base_out = base_.slot();
  RIVULET_RETURN_IF_ERROR(PlanPages(count));
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
  return segment;
}

// All kinds or none.
absl::Status Session::PlanPages(size_t count) {
  for (size_t kind = 0; kind < page_tables_.size(); ++kind) {
    const auto pages = page_tables_[kind].Plan(position_, count);
    if (!pages.ok()) {
      CancelSegment();
      return pages.status();
    }
    segment_pages_[kind] = *pages;
  }
  return absl::OkStatus();
}

uint64_t Session::state_bytes() const {
  const StateCapacity& capacity = states_.capacity();
  uint64_t bytes = capacity.base_bytes + capacity.tail_bytes;
  for (size_t kind = 0; kind < page_tables_.size(); ++kind) {
    bytes += pages(kind) * capacity.pages[kind].page_bytes;
  }
  return bytes;
}

void Session::CommitSegment() {
  RIVULET_CHECK(segment_planned(), "commits a segment that was not planned");
  position_ += std::exchange(planned_, 0);
  for (PageTable& table : page_tables_) table.Commit();
  if (next_base_.held()) base_ = std::move(next_base_);
  next_base_ = SlotHandle();
}

void Session::CancelSegment() {
  for (PageTable& table : page_tables_) table.Cancel();
  planned_ = 0;
  next_base_ = SlotHandle();
}

}  // namespace rivulet
