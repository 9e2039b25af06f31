// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The session states' memory on a device.
//
// Threading: engine thread only.
#ifndef RIVULET_SERVER_ENGINE_DEVICE_STATES_H_
#define RIVULET_SERVER_ENGINE_DEVICE_STATES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "server/engine/state_memory.h"
#include "server/engine/state_pool.h"

namespace rivulet {

class DeviceStateMemory final : public StateMemory {
 public:
  explicit DeviceStateMemory(Device* device) : device_(device) {}

  absl::Status Reserve(size_t bytes) override;
  std::byte* begin() const override { return begin_; }
  void Copy(size_t from, size_t to, size_t bytes) override {
    device_->CopyOnDevice(begin_ + to, begin_ + from, bytes);
  }

  void Free() { device_->Free(std::exchange(begin_, nullptr)); }
  // Reserves as much on another device; the contents are lost.
  absl::Status MoveTo(Device* device) {
    device_ = device;
    return Reserve(bytes_);
  }

 private:
  Device* device_;
  size_t bytes_ = 0;
  std::byte* begin_ = nullptr;
};

// A pool of few slots, for steps that come before it is known how many there can be. `memory` is
// the pool's.
absl::StatusOr<std::unique_ptr<StatePool>> SmallPool(const StateCapacity& sizes,
                                                     uint64_t state_context, Device* device,
                                                     DeviceStateMemory*& memory);

// `status`, and where it is RESOURCE_EXHAUSTED with what the memory is for and what helps, unless
// it says that itself (LeastStateMemory).
absl::Status NoRoomFor(const char* what, const absl::Status& status);

// RESOURCE_EXHAUSTED: the `left` bytes that the device has for states do not hold a session, as
// `why` says, whose LeastStateMemory is what they need. Weights take `weights` bytes, and `kept`
// must stay free.
absl::Status NoRoomForStates(const Device& device, uint64_t weights, uint64_t left, uint64_t kept,
                             uint64_t state_context, const absl::Status& why);

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_DEVICE_STATES_H_
