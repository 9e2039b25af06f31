// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Slots of one layer and the sessions that hold them, for the suite and the benchmarks: what
// server/engine and server/session do for a whole model, without either.
//
// For tests and benchmarks only: fails through CHECK.
#ifndef RIVULET_KERNELS_MIXERS_SUITE_SLOTS_H_
#define RIVULET_KERNELS_MIXERS_SUITE_SLOTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/recurrence/pages.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Every float and bf16 made of these bytes is a NaN, so a read of what was never written shows.
inline constexpr int kPoison = 0xff;

// Base, tail and page slots with guard bytes between them, all poison: nothing of a fresh session
// has an initial value. Pages are handed out in an order that looks random.
class SuiteSlots : public SlotSource {
 public:
  // Pages for sessions of a suite's length. A layer without pages gets none.
  static constexpr size_t kPagesASlot = 40;

  // Everything is `fill` at first; pages are poisoned again whenever they are handed out, unless
  // the fill is another.
  SuiteSlots(const StateLayout& layout, size_t slots, size_t pages_a_slot = kPagesASlot,
             int fill = kPoison);

  LayerState state();

  // With the guard behind it.
  std::string Base(uint32_t slot) const;
  std::string Tail(uint32_t slot) const;
  std::string Page(uint32_t slot) const;
  // The numbers of a base, without the gaps between planes.
  std::string BasePlanes(uint32_t slot) const;
  // The numbers of these pages, one after the other, without the gaps between planes.
  std::string PagePlanes(const SegmentPages& pages, size_t fold) const;

  absl::StatusOr<uint32_t> Acquire() override;
  void Share(uint32_t slot) override { ++holders_[slot]; }
  void Release(uint32_t slot) override;
  bool Shared(uint32_t slot) const override { return holders_[slot] > 1; }

  const StateLayout& layout() const { return layout_; }
  std::byte* base_bytes() { return bases_.data(); }

 private:
  std::string Planes(StatePart part, const std::string& slot) const;

  const StateLayout& layout_;
  int fill_;
  size_t base_stride_, tail_stride_, page_stride_;
  AlignedBuffer<std::byte> bases_, tails_, pages_;
  std::vector<uint32_t> holders_, free_;
};

// One session: which slots it holds and how far it is.
class SuiteSession {
 public:
  SuiteSession(SuiteSlots& slots, uint32_t base, uint32_t tail)
      : base(base), tail(tail), pages(slots.layout().page_kind(), slots) {}

  // Its next tokens, in place, as rows from first_token of a step. The segment holds until Commit.
  Segment Plan(size_t first_token, size_t tokens);
  void Commit();

  uint32_t base, tail;
  uint64_t position = 0;
  PageTable pages;

 private:
  SegmentPages planned_;
  size_t tokens_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SUITE_SLOTS_H_
