// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Owns one reference to a state slot and gives it back when it is destroyed. Move-only; a
// default-made or moved-from handle owns nothing.
//
// Threading: engine thread only, destruction included. The slots must outlive every handle.
#ifndef RIVULET_SERVER_SESSION_SLOT_HANDLE_H_
#define RIVULET_SERVER_SESSION_SLOT_HANDLE_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/status.h"
#include "kernels/recurrence/pages.h"

namespace rivulet {

class SlotHandle {
 public:
  SlotHandle() = default;
  SlotHandle(SlotHandle&& other) noexcept
      : slots_(std::exchange(other.slots_, nullptr)), slot_(other.slot_) {}
  SlotHandle& operator=(SlotHandle&& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~SlotHandle() {
    if (held()) slots_->Release(slot_);
  }

  // A free slot. Fails as SlotSource::Acquire does.
  static absl::StatusOr<SlotHandle> Acquire(SlotSource& slots) {
    RIVULET_ASSIGN_OR_RETURN(const uint32_t slot, slots.Acquire());
    return SlotHandle(slots, slot);
  }
  // Another reference to the same slot. REQUIRES: held().
  SlotHandle Share() const {
    slots_->Share(slot_);
    return SlotHandle(*slots_, slot_);
  }

  bool held() const { return slots_ != nullptr; }
  bool shared() const { return slots_->Shared(slot_); }  // REQUIRES: held()
  uint32_t slot() const { return slot_; }

 private:
  SlotHandle(SlotSource& slots, uint32_t slot) : slots_(&slots), slot_(slot) {}

  SlotSource* slots_ = nullptr;
  uint32_t slot_ = 0;
};

}  // namespace rivulet

#endif  // RIVULET_SERVER_SESSION_SLOT_HANDLE_H_
