// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The host memory that sessions' states live in: base slots, tail slots and slots of each
// kind of pages, each one run of bytes over all layers, so that a snapshot is a copy for each slot.
// Bases and pages are counted references, tails have one owner. Everything is O(1) but the
// zeroing of a base that was used before.
//
// It knows bytes, not what they mean, and no session. Memory is reserved at once and becomes real
// when first touched, so a large --state-memory costs nothing until sessions come.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_STATE_POOL_H_
#define RIVULET_SERVER_ENGINE_STATE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/recurrence/state.h"
#include "server/engine/engine.h"

namespace rivulet {

// Where each layer's planes lie in a slot: the sum of the layers' layouts.
struct StateSizes {
  uint32_t fold_interval = 0;  // the layers'
  size_t base_bytes = 0;       // of one slot
  size_t tail_bytes = 0;
  std::vector<size_t> base_offsets;  // [layers]
  std::vector<size_t> tail_offsets;
  // The kinds of pages that the layers have, in the order of their first layers.
  struct Pages {
    PageKind kind;
    size_t page_bytes = 0;
  };
  std::vector<Pages> pages;
  std::vector<size_t> page_kinds;  // [layers], index into `pages`; undefined without pages
  std::vector<size_t> page_offsets;
};

StateSizes AddUpLayouts(std::span<const StateLayout* const> layers);

// How `state_memory` bytes are split: as many tails as possible such that every tail has a
// base of its own and there are spares, one for each kTailsPerSpare tails and at least one. A
// fold of a shared base takes a slot before it gives the old one back; with one spare some
// session can always go on, with more they need not take turns. Pages are as many as all sessions
// need when each holds `state_context` tokens: longer ones leave room for fewer sessions.
// RESOURCE_EXHAUSTED naming --state-memory and the least that works.
absl::StatusOr<StateCapacity> SplitStateMemory(const StateSizes& sizes, uint64_t state_memory,
                                               uint64_t state_context);

class StatePool {
 public:
  static constexpr uint32_t kTailsPerSpare = 8;
  static constexpr uint32_t kMaxTails = 1 << 16;

  // RESOURCE_EXHAUSTED as SplitStateMemory, or if the system refuses the address space.
  static absl::StatusOr<std::unique_ptr<StatePool>> Make(StateSizes sizes, uint64_t state_memory,
                                                         uint64_t state_context = 4096);
  ~StatePool();
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  // One reference, all zeros. RESOURCE_EXHAUSTED naming --state-memory; nothing changes then.
  absl::StatusOr<uint32_t> AcquireBase();
  void ShareBase(uint32_t slot);
  // Free when the last reference goes. REQUIRES: the slot is held.
  void ReleaseBase(uint32_t slot);
  bool BaseShared(uint32_t slot) const { return References(slot) > 1; }

  // Contents undefined (what the last owner left).
  absl::StatusOr<uint32_t> AcquireTail();
  void ReleaseTail(uint32_t slot);
  void CopyTail(uint32_t from, uint32_t to);

  PageSource& pages(size_t kind) { return page_pools_[kind]; }

  const StateCapacity& capacity() const { return capacity_; }
  uint32_t bases_used() const { return bases_.used(); }
  uint32_t tails_used() const { return tails_.used(); }
  uint32_t pages_used(size_t kind) const { return page_pools_[kind].used(); }

  // Layer `layer`'s part of all slots.
  LayerState Layer(size_t layer) const;
  // All bytes of one slot. REQUIRES: the slot is held.
  std::span<std::byte> BaseBytes(uint32_t slot) const;
  std::span<std::byte> TailBytes(uint32_t slot) const;

 private:
  // Numbers 0..count-1, the last one returned is handed out first: it is warm in the cache.
  class Slots {
   public:
    explicit Slots(uint32_t count) : references_(count) {}
    bool full() const { return used_ == references_.size(); }
    uint32_t used() const { return used_; }
    bool held(uint32_t slot) const { return slot < references_.size() && references_[slot] > 0; }
    uint32_t references(uint32_t slot) const { return references_[slot]; }
    // The next Take hands out a slot that was never used: its memory is zeros.
    bool next_is_fresh() const { return free_.empty(); }
    uint32_t Take();
    void Share(uint32_t slot) { ++references_[slot]; }
    void Release(uint32_t slot);

   private:
    std::vector<uint32_t> references_;
    std::vector<uint32_t> free_;  // of those below touched_
    uint32_t touched_ = 0;        // slots that were ever handed out
    uint32_t used_ = 0;
  };

  // One kind's slots.
  class PagePool final : public PageSource {
   public:
    explicit PagePool(const PageCapacity& capacity)
        : slots_(capacity.slots), count_(capacity.slots) {}
    absl::StatusOr<uint32_t> Acquire() override;
    void Share(uint32_t slot) override;
    void Release(uint32_t slot) override;
    bool Shared(uint32_t slot) const override { return slots_.references(slot) > 1; }
    uint32_t used() const { return slots_.used(); }

   private:
    Slots slots_;
    uint32_t count_;
  };

  StatePool(StateSizes sizes, StateCapacity capacity, std::byte* memory);
  uint32_t References(uint32_t slot) const;
  std::byte* Tails() const;
  std::byte* Pages(size_t kind) const;

  StateSizes sizes_;
  StateCapacity capacity_;
  std::byte* memory_;  // all bases, then all tails, then all pages of each kind
  Slots bases_;
  Slots tails_;
  std::vector<PagePool> page_pools_;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_STATE_POOL_H_
