// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/recurrence/pages.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

bool Contains(const std::vector<uint32_t>& slots, uint32_t slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// The first page with a token that the token at `position` still sees.
uint64_t FirstSeen(const PageKind& kind, uint64_t position) {
  if (kind.window == 0 || position + 1 <= kind.window) return 0;
  return (position + 1 - kind.window) / kind.fold_interval;
}

absl::Status CheckFenwick(const PageKind& kind, const SegmentPages& pages, uint64_t chunk,
                          size_t folds) {
  if (pages.levels != kind.levels) {
    return absl::InvalidArgumentError(absl::StrCat("the page table has ", pages.levels,
                                                   " levels, the model ", kind.levels,
                                                   ": it is another model's"));
  }
  for (size_t fold = 0; fold <= folds; ++fold) {
    for (uint32_t p = 0; p < kind.levels; ++p) {
      const bool there = pages.Table(fold)[p] != kNoPage;
      if (there == HasPage(chunk + fold, p, kind.levels)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the page table does not fit position ", (chunk + fold) * kind.fold_interval,
                       ": page ", p, there ? " is there and must not be" : " is missing",
                       "; take the table of that position"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t MostPages(const PageKind& kind, uint64_t tokens, uint64_t segment) {
  if (kind.rule == PageRule::kNone) return 0;
  const uint64_t chunks = tokens / kind.fold_interval;
  if (chunks == 0) return 0;
  if (kind.rule == PageRule::kAppended) {
    if (kind.window == 0) return chunks;
    return std::min(chunks, kind.window / kind.fold_interval + segment / kind.fold_interval + 3);
  }
  // All bits of a shorter count may be set on the way to `chunks`, and a fold takes one page before
  // it gives any back.
  return std::min<uint64_t>(kind.levels, std::bit_width(chunks)) + 1;
}

absl::Status CheckPages(const PageKind& kind, const SegmentPages& pages, uint64_t position,
                        size_t tokens) {
  if (kind.rule == PageRule::kNone) return absl::OkStatus();
  const uint64_t chunk = position / kind.fold_interval;
  const size_t folds = FoldsIn(position, tokens, kind.fold_interval);
  // A small window may have released every page. Then slots is null and first_page tells.
  if (pages.slots == nullptr && chunk + folds > pages.first_page) {
    return absl::InvalidArgumentError(
        absl::StrCat("position ", position, " needs pages and there is no page table"));
  }
  if (kind.fenwick()) return CheckFenwick(kind, pages, chunk, folds);
  if (pages.first_page <= FirstSeen(kind, position) &&
      pages.first_page + pages.count == chunk + folds) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the page table does not fit position ", position, " and ", tokens, " tokens: it has pages ",
      pages.first_page, " to ", pages.first_page + pages.count, ", and ", FirstSeen(kind, position),
      " to ", chunk + folds, " are needed"));
}

uint64_t PagesMovedByFold(const PageKind& kind, uint64_t chunk) {
  if (kind.rule == PageRule::kNone) return 0;
  uint64_t moved = 1;
  if (!kind.fenwick()) return moved;
  const uint32_t made = CarryPage(chunk, kind.levels);
  for (uint32_t p = 0; p < kind.levels; ++p) {
    if (!HasPage(chunk, p, kind.levels)) continue;
    if (p <= made) ++moved;
    if (p > made && kind.rule == PageRule::kRewrittenFenwick) moved += 2;
  }
  return moved;
}

PageTable::PageTable(const PageKind& kind, SlotSource& source) : kind_(kind), source_(&source) {
  if (kind.fenwick()) table_.assign(kind.levels, kNoPage);
}

PageTable::PageTable(PageTable&& other) noexcept
    : kind_(other.kind_),
      source_(std::exchange(other.source_, nullptr)),
      table_(std::exchange(other.table_, {})),
      first_page_(other.first_page_),
      planned_(std::exchange(other.planned_, {})),
      acquired_(std::exchange(other.acquired_, {})),
      reusable_(std::exchange(other.reusable_, {})),
      folds_(other.folds_),
      keep_folds_(other.keep_folds_),
      end_(other.end_) {}

PageTable::~PageTable() {
  if (source_ == nullptr) return;
  Cancel();
  KeepOnly({});
}

PageTable PageTable::Fork() const {
  PageTable fork(kind_, *source_);
  fork.table_ = table_;
  fork.first_page_ = first_page_;
  fork.end_ = end_;
  for (const uint32_t slot : table_) {
    if (slot != kNoPage) source_->Share(slot);
  }
  return fork;
}

PageTable PageTable::ForkAt(size_t fold) const {
  RIVULET_CHECK(keep_folds_ && fold < folds_ && kind_.rule != PageRule::kRewrittenFenwick,
                "forks a table that was not kept");
  PageTable fork(kind_, *source_);
  fork.end_ = (end_ / kind_.fold_interval - (folds_ - 1 - fold)) * kind_.fold_interval;
  if (kind_.fenwick()) {
    const auto after = planned_.begin() + static_cast<ptrdiff_t>((fold + 1) * kind_.levels);
    fork.table_.assign(after, after + kind_.levels);
  } else {
    fork.table_.assign(table_.begin(), table_.end() - static_cast<ptrdiff_t>(folds_ - 1 - fold));
    fork.first_page_ = first_page_;
  }
  for (const uint32_t slot : fork.table_) {
    if (slot != kNoPage) source_->Share(slot);
  }
  if (!kind_.fenwick()) fork.DropUnseen();
  return fork;
}

size_t PageTable::pages() const {
  if (!kind_.fenwick()) return table_.size() - acquired_.size();
  return table_.size() - std::count(table_.begin(), table_.end(), kNoPage);
}

size_t PageTable::SharedWith(const PageTable& other) const {
  const uint64_t first = std::max(first_page_, other.first_page_);
  const uint64_t end =
      std::min(first_page_ + table_.size(), other.first_page_ + other.table_.size());
  size_t shared = 0;
  for (uint64_t page = first; page < end; ++page) {
    const uint32_t slot = table_[page - first_page_];
    shared += slot != kNoPage && slot == other.table_[page - other.first_page_] ? 1 : 0;
  }
  return shared;
}

size_t PageTable::own_pages() const {
  return static_cast<size_t>(std::count_if(table_.begin(), table_.end(), [this](uint32_t slot) {
    return slot != kNoPage && Ours(slot);
  }));
}

// Without levels, a fold takes at most one page.
uint64_t PageTable::MissingWith(uint64_t own, uint64_t position, uint64_t tokens,
                                uint64_t segment) const {
  const uint64_t held = position / kind_.fold_interval, chunks = tokens / kind_.fold_interval;
  if (chunks <= held) return 0;
  const uint64_t most = MostPages(kind_, tokens, segment);
  const uint64_t missing = most - std::min(most, own);
  return kind_.fenwick() ? missing : std::min(missing, chunks - held);
}

uint64_t PageTable::Missing(uint64_t position, uint64_t tokens, uint64_t segment) const {
  // Without a window no page is ever released, so each fold takes one, regardless of what is held.
  if (!kind_.fenwick() && kind_.window == 0) return MissingInFork(position, tokens, segment);
  return MissingWith(own_pages(), position, tokens, segment);
}

uint64_t PageTable::MissingInFork(uint64_t position, uint64_t tokens, uint64_t segment) const {
  return MissingWith(0, position, tokens, segment);
}

absl::StatusOr<SegmentPages> PageTable::Plan(uint64_t position, size_t tokens, bool keep_folds) {
  keep_folds_ = keep_folds;
  folds_ = kind_.rule == PageRule::kNone ? 0 : FoldsIn(position, tokens, kind_.fold_interval);
  end_ = position + tokens;
  const absl::Status status =
      kind_.fenwick() ? PlanFenwick(position / kind_.fold_interval, folds_) : PlanAppended(folds_);
  if (!status.ok()) {
    Cancel();
    return status;
  }
  SegmentPages pages;
  const std::vector<uint32_t>& slots = kind_.fenwick() ? planned_ : table_;
  pages.slots = slots.data();
  pages.count = slots.size();
  pages.first_page = first_page_;
  pages.levels = kind_.levels;
  return pages;
}

// Planned pages are appended to the table itself, so that a long table is not copied. Its memory is
// taken before any slot, so that none is lost if there is no memory.
absl::Status PageTable::PlanAppended(size_t folds) {
  acquired_.reserve(folds);
  table_.reserve(std::bit_ceil(table_.size() + folds));
  for (size_t fold = 0; fold < folds; ++fold) {
    RIVULET_ASSIGN_OR_RETURN(const uint32_t slot, source_->Acquire());
    acquired_.push_back(slot);
    table_.push_back(slot);
  }
  return absl::OkStatus();
}

absl::Status PageTable::PlanFenwick(uint64_t chunk, size_t folds) {
  planned_.reserve((folds + 1) * kind_.levels);
  planned_.assign(table_.begin(), table_.end());
  for (size_t fold = 0; fold < folds; ++fold) {
    planned_.resize(planned_.size() + kind_.levels);
    uint32_t* table = planned_.data() + (fold + 1) * kind_.levels;
    std::copy_n(table - kind_.levels, kind_.levels, table);
    RIVULET_RETURN_IF_ERROR(PlanFold(chunk + fold, table));
  }
  return absl::OkStatus();
}

// Takes the new page before the consumed ones become free, since they are read while it is written.
absl::Status PageTable::PlanFold(uint64_t chunk, uint32_t* table) {
  const uint32_t made = CarryPage(chunk, kind_.levels);
  RIVULET_ASSIGN_OR_RETURN(const uint32_t slot, Take());
  for (uint32_t p = 0; p <= made; ++p) {
    const uint32_t consumed = std::exchange(table[p], kNoPage);
    if (consumed != kNoPage && Ours(consumed) && !keep_folds_) reusable_.push_back(consumed);
  }
  table[made] = slot;
  if (kind_.rule != PageRule::kRewrittenFenwick) return absl::OkStatus();
  for (uint32_t p = made + 1; p < kind_.levels; ++p) {
    if (table[p] == kNoPage || Ours(table[p])) continue;
    RIVULET_ASSIGN_OR_RETURN(table[p], Take());
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> PageTable::Take() {
  if (!reusable_.empty()) {
    const uint32_t slot = reusable_.back();
    reusable_.pop_back();
    return slot;
  }
  acquired_.reserve(acquired_.size() + 1);  // first, so that no slot is lost without memory
  RIVULET_ASSIGN_OR_RETURN(const uint32_t slot, source_->Acquire());
  acquired_.push_back(slot);
  return slot;
}

bool PageTable::Ours(uint32_t slot) const { return !source_->Shared(slot); }

void PageTable::Commit() {
  if (!kind_.fenwick()) {
    DropUnseen();
  } else if (folds_ > 0) {
    KeepOnly(std::vector<uint32_t>(planned_.end() - kind_.levels, planned_.end()));
  }
  EndPlan();
}

// The pages that no later token of a sliding window sees, also if the session goes back to the last
// border and computes its tokens since then again.
void PageTable::DropUnseen() {
  const uint64_t border = end_ - end_ % kind_.fold_interval;
  const uint64_t seen = std::min(FirstSeen(kind_, border), first_page_ + table_.size());
  if (seen <= first_page_) return;
  const auto unseen = table_.begin() + static_cast<ptrdiff_t>(seen - first_page_);
  for (auto slot = table_.begin(); slot != unseen; ++slot) source_->Release(*slot);
  table_.erase(table_.begin(), unseen);
  first_page_ = seen;
}

void PageTable::Cancel() {
  if (!kind_.fenwick()) table_.resize(table_.size() - acquired_.size());
  for (const uint32_t slot : acquired_) source_->Release(slot);
  EndPlan();
}

// Releases every slot of the table and the plan that is not in `kept`.
void PageTable::KeepOnly(const std::vector<uint32_t>& kept) {
  for (const std::vector<uint32_t>* held : {&table_, &acquired_}) {
    for (const uint32_t slot : *held) {
      if (slot != kNoPage && !Contains(kept, slot)) source_->Release(slot);
    }
  }
  table_ = kept;
}

void PageTable::EndPlan() {
  acquired_.clear();
  reusable_.clear();
  planned_.clear();
  folds_ = 0;
  keep_folds_ = false;
}

}  // namespace rivulet
