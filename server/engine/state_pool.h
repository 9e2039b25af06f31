// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The slots that sessions' states live in: base slots, tail slots and slots of each kind of pages.
// Each slot is one run of bytes over all layers, so a snapshot is one copy for each slot.
//
// The pool divides a StateMemory and counts references. It does not know what the bytes mean, nor
// which session holds them, and every operation is O(1). A released slot may be handed out again at
// once: work on a device runs in the order in which it is launched, so the next holder's steps
// start when the last holder's have ended.
//
// Threading: engine thread only, except capacity(), which is constant.
#ifndef RIVULET_SERVER_ENGINE_STATE_POOL_H_
#define RIVULET_SERVER_ENGINE_STATE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/recurrence/pages.h"
#include "kernels/recurrence/state.h"
#include "server/engine/head_marks.h"
#include "server/engine/state_memory.h"

namespace rivulet {

// The longest segment that a step may hold: pages that a session takes within it are counted.
inline constexpr uint64_t kLongestSegment = 1024;

// Of one kind of pages: bytes of a slot over all layers of the kind, and how many slots.
struct PageCapacity {
  PageKind kind;
  uint64_t page_bytes = 0;
  uint32_t slots = 0;
};

// Bytes and numbers of slots, and where each layer's planes are in them.
struct StateCapacity {
  uint32_t fold_interval = 0;  // C: tokens between two bases (kernels/recurrence/state.h)
  uint64_t base_bytes = 0;     // of one slot, all layers
  uint64_t tail_bytes = 0;
  bool running_tail = false;  // a layer has one (StateLayout)
  // Segment::fold_bases may be given: no fold rewrites pages.
  bool fold_bases = false;
  uint32_t base_slots = 0;
  uint32_t tail_slots = 0;
  std::vector<PageCapacity> pages;  // of the kinds that the layers have, as they first appear
  struct Layer {
    size_t base_offset = 0;
    size_t tail_offset = 0;
    size_t page_kind = 0;  // index into `pages`; undefined for a layer without pages
    size_t page_offset = 0;
  };
  std::vector<Layer> layers;
};

// The sum of the layers' layouts, without slots. REQUIRES: all have the same fold interval.
StateCapacity AddUpLayouts(std::span<const StateLayout* const> layers);

// Splits `state_memory` bytes into slots of these `sizes`: as many tails as fit, with one base for
// each tail and spare bases, one for each kTailsPerSpare tails and at least one. The fold of a
// shared base takes a slot before it gives the old one back: with one spare some session can always
// go on, with more they need not take turns. There are as many pages as all sessions need when each
// holds `state_context` tokens; longer sessions leave room for fewer. RESOURCE_EXHAUSTED naming
// --state-memory and the least that works, which LeastStateMemory gives; INVALID_ARGUMENT if
// `state_context` is less than a chunk.
absl::StatusOr<StateCapacity> SplitStateMemory(StateCapacity sizes, uint64_t state_memory,
                                               uint64_t state_context);

// The bytes that were needed, of an error of SplitStateMemory that there were too few; nullopt: of
// any other status.
std::optional<uint64_t> LeastStateMemory(const absl::Status& status);

// Of all slots.
uint64_t StateBytes(const StateCapacity& capacity);

// The slots of one part of the states: numbers 0 .. slots - 1 with a count of references each.
class SlotPool final : public SlotSource {
 public:
  // `part` names the slots in errors ("base") and must outlive the pool.
  SlotPool(const char* part, uint32_t slots) : part_(part), references_(slots) {
    free_.reserve(slots);  // Release runs in destructors and must not need memory
  }

  // Prefers the slot that was released last, whose memory is warm in the cache, to one that was
  // never used. RESOURCE_EXHAUSTED naming --state-memory.
  absl::StatusOr<uint32_t> Acquire() override;
  void Share(uint32_t slot) override;
  void Release(uint32_t slot) override;
  bool Shared(uint32_t slot) const override;

  uint32_t used() const { return used_; }

 private:
  void CheckHeld(uint32_t slot) const;

  const char* part_;
  std::vector<uint32_t> references_;
  std::vector<uint32_t> free_;  // of those below touched_
  uint32_t touched_ = 0;        // slots that were ever handed out
  uint32_t used_ = 0;
};

class StatePool {
 public:
  static constexpr uint32_t kTailsPerSpare = 8;
  static constexpr uint32_t kMaxTails = 1 << 16;

  // Fails as SplitStateMemory and StateMemory::Reserve do.
  static absl::StatusOr<std::unique_ptr<StatePool>> Make(
      StateCapacity sizes, uint64_t state_memory, uint64_t state_context = 4096,
      std::unique_ptr<StateMemory> memory = std::make_unique<HostStateMemory>());

  // The contents of an acquired slot are undefined, also of the base of a session without tokens:
  // at positions below C every mixer reads the base as zeros. A tail is never shared. A base or a
  // page that is shared must not be written; the pool does not check this.
  SlotPool& bases() { return bases_; }
  SlotPool& tails() { return tails_; }
  SlotPool& pages(size_t kind) { return pages_[kind]; }

  void CopyTail(uint32_t from, uint32_t to);  // REQUIRES: from != to

  // Kept by the engine, and by CopyTail.
  HeadMarks& head_marks() { return head_marks_; }

  const StateCapacity& capacity() const { return capacity_; }

  // The part of all slots that belongs to layer number `layer`.
  LayerState Layer(size_t layer) const;

 private:
  StatePool(StateCapacity capacity, std::unique_ptr<StateMemory> memory);
  size_t TailsOffset() const { return capacity_.base_slots * capacity_.base_bytes; }
  size_t PagesOffset(size_t kind) const;

  const StateCapacity capacity_;
  const std::unique_ptr<StateMemory> memory_;  // bases, then tails, then the pages of each kind
  SlotPool bases_;
  SlotPool tails_;
  std::vector<SlotPool> pages_;
  HeadMarks head_marks_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STATE_POOL_H_
