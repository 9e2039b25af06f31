// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a step tells a device about its rows, side by side in pinned memory and in the same order on
// the device: one copy of the bytes that are used brings all of it there. Entries of page tables,
// edits of logits and masks of tokens come last, since their number varies; everything before them
// depends on the extents alone, so a recording finds it at the same place in every step.
//
// Draws whose masks are found while the device already runs the step are late: they and their masks
// lie behind everything else and follow in a second copy.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_STEP_DESCRIPTION_H_
#define RIVULET_SERVER_ENGINE_STEP_DESCRIPTION_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/device_types.h"
#include "kernels/device/sampling_operations.h"
#include "kernels/recurrence/state.h"
#include "server/engine/state_pool.h"

namespace rivulet {

// The kinds of pages that a model's layers have at most.
inline constexpr size_t kMaxPageKinds = 8;

class StepDescription {
 public:
  struct Extents {
    size_t tokens = 0;
    size_t segments = 0;
    size_t places = 0;        // tokens whose logits are wanted
    size_t page_kinds = 0;    // <= kMaxPageKinds
    bool fold_bases = false;  // a segment has them (Segment::fold_bases)
  };

  // Lays itself out in `memory`, of the host or of the device.
  StepDescription(std::byte* memory, const Extents& extents) : memory_(memory), extents_(extents) {
    segments_ = reinterpret_cast<DeviceSegment*>(memory);
    segment_pages_ = reinterpret_cast<DeviceSegmentPages*>(segments_ + extents.segments);
    draws_ = reinterpret_cast<SampleRow*>(segment_pages_ + extents.segments * extents.page_kinds);
    ids_ = reinterpret_cast<uint32_t*>(draws_ + extents.places);
    segment_of_ = ids_ + extents.tokens;
    place_tokens_ = segment_of_ + extents.tokens;
    fold_bases_ = place_tokens_ + extents.places;
    page_slots_ = fold_bases_ + FoldBases(extents);
  }
  static size_t Bytes(const Extents& extents, size_t page_slots, size_t edits, size_t mask_words) {
    return extents.segments *
               (sizeof(DeviceSegment) + extents.page_kinds * sizeof(DeviceSegmentPages)) +
           2 * extents.places * sizeof(SampleRow) +
           (2 * extents.tokens + extents.places + FoldBases(extents) + page_slots) *
               sizeof(uint32_t) +
           (edits + 1) * sizeof(LogitEdit) + (mask_words + 1) * sizeof(uint64_t);
  }

  DeviceSegment* segments() const { return segments_; }
  DeviceSegmentPages* segment_pages(size_t kind) const {
    return segment_pages_ + kind * extents_.segments;
  }
  uint32_t* ids() const { return ids_; }
  uint32_t* segment_of() const { return segment_of_; }
  uint32_t* place_tokens() const { return place_tokens_; }
  // As DeviceRows has them.
  uint32_t* fold_bases() const { return extents_.fold_bases ? fold_bases_ : nullptr; }
  SampleRow* draws() const { return draws_; }  // [places]
  // SampleRow::first_edit counts from here.
  LogitEdit* edits() const { return reinterpret_cast<LogitEdit*>(memory_); }
  // SampleRow::mask counts from here.
  uint64_t* masks() const { return reinterpret_cast<uint64_t*>(memory_); }

  // Of a kind, as kernels take them.
  DevicePages Pages(size_t kind, const PageCapacity& capacity) const {
    return {segment_pages(kind), page_slots_, capacity.kind.levels};
  }

  // On the host: the bases that the folds of a segment write. REQUIRES: Extents::fold_bases.
  void SetFoldBases(const Segment& segment, uint64_t fold_interval) {
    const size_t folds = FoldsIn(segment.position, segment.tokens, fold_interval);
    size_t last = segment.first_token + fold_interval - segment.position % fold_interval - 1;
    for (size_t fold = 0; fold < folds; ++fold, last += fold_interval) {
      fold_bases_[last] = segment.BaseAfter(fold);
    }
  }

  // How many entries the tables of a segment take.
  static size_t PageSlots(const Segment& segment, size_t kind, const PageCapacity& capacity) {
    const SegmentPages& pages = segment.pages[kind];
    if (!capacity.kind.fenwick()) return pages.count;
    const size_t folds = FoldsIn(segment.position, segment.tokens, capacity.kind.fold_interval);
    return (folds + 1) * pages.levels;
  }

  // On the host: appends the tables of segment number `index`.
  void AddPages(size_t index, const Segment& segment, size_t kind, const PageCapacity& capacity) {
    const SegmentPages& pages = segment.pages[kind];
    const size_t count = PageSlots(segment, kind, capacity);
    segment_pages(kind)[index] = {static_cast<uint32_t>(page_slots_used_),
                                  static_cast<uint32_t>(count), pages.first_page};
    std::copy_n(pages.slots, count, page_slots_ + page_slots_used_);
    page_slots_used_ += count;
  }

  // On the host, after all page tables: `write`(LogitEdit* to) appends edits for a draw and returns
  // how many they are.
  template <typename Write>
  void AddEdits(SampleRow& draw, Write&& write) {
    draw.first_edit = static_cast<uint32_t>(FirstEdit() + edits_used_);
    draw.edits = static_cast<uint32_t>(write(edits() + draw.first_edit));
    edits_used_ += draw.edits;
  }

  std::span<uint64_t> MaskOf(const SampleRow& draw, size_t words) const {
    return {masks() + draw.mask, words};
  }

  // On the host, after all edits and before the masks: late draws [places], which draw nothing yet.
  SampleRow* AddLateDraws() {
    SampleRow* const draws = reinterpret_cast<SampleRow*>(memory_ + LateBegin());
    std::fill_n(draws, extents_.places, SampleRow{});
    words_used_ += extents_.places * (sizeof(SampleRow) / sizeof(uint64_t));
    return draws;
  }
  // Where they are, in bytes.
  size_t LateBegin() const { return FirstWord() * sizeof(uint64_t); }

  // On the host, after all edits: appends a mask of `words`, which the caller fills.
  void AddMask(SampleRow& draw, size_t words) {
    draw.mask = static_cast<uint32_t>(FirstWord() + words_used_);
    words_used_ += words;
  }

  size_t bytes() const {
    return words_used_ == 0 ? EndOfEdits() : LateBegin() + words_used_ * sizeof(uint64_t);
  }

 private:
  static size_t FoldBases(const Extents& extents) {
    return extents.fold_bases ? extents.tokens : 0;
  }
  size_t EndOfPages() const {
    return reinterpret_cast<std::byte*>(page_slots_ + page_slots_used_) - memory_;
  }
  size_t FirstEdit() const { return (EndOfPages() + sizeof(LogitEdit) - 1) / sizeof(LogitEdit); }
  size_t EndOfEdits() const {
    return edits_used_ == 0 ? EndOfPages() : (FirstEdit() + edits_used_) * sizeof(LogitEdit);
  }
  size_t FirstWord() const { return (EndOfEdits() + sizeof(uint64_t) - 1) / sizeof(uint64_t); }

  std::byte* memory_;
  Extents extents_;
  DeviceSegment* segments_;
  DeviceSegmentPages* segment_pages_;
  SampleRow* draws_;
  uint32_t *ids_, *segment_of_, *place_tokens_, *fold_bases_, *page_slots_;
  size_t page_slots_used_ = 0;
  size_t edits_used_ = 0;
  size_t words_used_ = 0;  // of late draws and masks
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STEP_DESCRIPTION_H_
