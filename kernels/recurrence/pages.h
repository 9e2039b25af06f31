// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The pages of one kind that one session holds, and which of them a segment will read and write.
// The mixer decides what a page contains; this file deals with slots and references only.
//
//   PageTable::Plan    before a segment runs: takes the slots that its folds will write
//   PageTable::Commit  it ran: the table is now the one after its last fold; replaced pages are
//                      released
//   PageTable::Cancel  it did not run: back to the table before Plan
//   PageTable::Fork    a second table that shares every page with this one
//   PageTable::ForkAt  the same for the table after a fold of the planned segment
//
// Within a segment, a page that only this session holds is reused as soon as a fold has consumed
// it, unless tables after its folds are to be forked. Shared pages are never written.
//
// Threading: one thread for all tables of one SlotSource (the engine's).
#ifndef RIVULET_KERNELS_RECURRENCE_PAGES_H_
#define RIVULET_KERNELS_RECURRENCE_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Hands out the slots of one part of the states, reference-counted.
class SlotSource {
 public:
  virtual ~SlotSource() = default;
  // A slot with one reference; its contents are undefined. RESOURCE_EXHAUSTED if none is left.
  virtual absl::StatusOr<uint32_t> Acquire() = 0;
  // REQUIRES for all that follow: the slot is held.
  virtual void Share(uint32_t slot) = 0;         // one more reference
  virtual void Release(uint32_t slot) = 0;       // one less; without any the slot is free
  virtual bool Shared(uint32_t slot) const = 0;  // more than one reference
};

// The most pages of a kind that a session can hold while it grows to `tokens` tokens in segments of
// at most `segment`, if it shares none. Forks that go on from shared pages need as many each, and
// as many once more for the pages that they share.
uint64_t MostPages(const PageKind& kind, uint64_t tokens, uint64_t segment);

// Checks that the pages fit a session at `position` that continues with `tokens` tokens: all the
// pages that the rule asks for before the first fold, and those that the folds write.
// INVALID_ARGUMENT names the position, the page and what is wrong. For tables from outside.
absl::Status CheckPages(const PageKind& kind, const SegmentPages& pages, uint64_t position,
                        size_t tokens);

// How many pages the fold of a session's chunk number `chunk` reads plus how many it writes, to
// estimate the bytes that it moves.
uint64_t PagesMovedByFold(const PageKind& kind, uint64_t chunk);

class PageTable {
 public:
  // An empty table, of a session without tokens. `source` must outlive it.
  PageTable(const PageKind& kind, SlotSource& source);
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&&) = delete;
  ~PageTable();

  PageTable Fork() const;  // REQUIRES: nothing is planned
  // The table after fold number `fold` of the planned segment, which has run. REQUIRES: Plan with
  // keep_folds, and pages that no fold rewrites.
  PageTable ForkAt(size_t fold) const;

  // For `tokens` tokens from `position`, which must be where the committed segments end. The result
  // is valid until Commit or Cancel. RESOURCE_EXHAUSTED: nothing has changed.
  // `keep_folds`: for ForkAt; each fold then takes a page.
  absl::StatusOr<SegmentPages> Plan(uint64_t position, size_t tokens, bool keep_folds = false);
  void Commit();
  void Cancel();

  // Held now, not counting what a plan has taken.
  size_t pages() const;
  // Of these, how many `other` holds at the same places, as tables do of which one is a Fork of the
  // other that went on.
  size_t SharedWith(const PageTable& other) const;
  // How many no other table holds.
  size_t own_pages() const;
  // The most pages that it may still take while it grows from `position`, where the committed
  // segments end, to `tokens` tokens. Shared pages do not count as held, since a fold replaces them
  // with new ones.
  uint64_t Missing(uint64_t position, uint64_t tokens, uint64_t segment) const;
  // The same for a Fork of it, which shares every page.
  uint64_t MissingInFork(uint64_t position, uint64_t tokens, uint64_t segment) const;

 private:
  uint64_t MissingWith(uint64_t own, uint64_t position, uint64_t tokens, uint64_t segment) const;
  absl::Status PlanAppended(size_t folds);
  absl::Status PlanFenwick(uint64_t chunk, size_t folds);
  absl::Status PlanFold(uint64_t chunk, uint32_t* table);
  absl::StatusOr<uint32_t> Take();
  bool Ours(uint32_t slot) const;
  void DropUnseen();
  void KeepOnly(const std::vector<uint32_t>& kept);
  void EndPlan();

  PageKind kind_;
  SlotSource* source_;
  // Fenwick: [levels], kNoPage where there is none. kAppended: the pages from first_page_ on.
  std::vector<uint32_t> table_;
  uint64_t first_page_ = 0;

  // While a segment is planned.
  std::vector<uint32_t> planned_;   // Fenwick: [folds + 1, levels]
  std::vector<uint32_t> acquired_;  // taken by the plan
  std::vector<uint32_t> reusable_;  // ours, and consumed by a fold of the plan
  size_t folds_ = 0;
  bool keep_folds_ = false;
  uint64_t end_ = 0;  // position after the segment
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_RECURRENCE_PAGES_H_
