// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_states.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace rivulet {

absl::Status DeviceStateMemory::Reserve(size_t bytes) {
  const absl::StatusOr<void*> memory = device_->Allocate(bytes);
  if (!memory.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no room for the session states: ", memory.status().message(), "; lower --state-memory"));
  }
  begin_ = static_cast<std::byte*>(*memory);
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StatePool>> SmallPool(const StateCapacity& sizes,
                                                     uint64_t state_context, Device* device,
                                                     DeviceStateMemory*& memory) {
  constexpr uint64_t kEnough = uint64_t{1} << 44;
  for (uint64_t bytes = uint64_t{1} << 20;; bytes *= 2) {  // until a session fits
    const absl::StatusOr<StateCapacity> fits = SplitStateMemory(sizes, bytes, state_context);
    if (absl::IsResourceExhausted(fits.status()) && bytes < kEnough) continue;
    auto made = std::make_unique<DeviceStateMemory>(device);
    memory = made.get();
    return StatePool::Make(sizes, bytes, state_context, std::move(made));
  }
}

absl::Status NoRoomForStates(const Device& device, uint64_t weights, const absl::Status& why) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for the session states: ", device.name(), " has ", device.free_bytes(),
      " bytes free after ", weights, " bytes of weights and ", device.allocated_bytes() - weights,
      " of temporaries, and some of that must remain free; ", why.message(),
      "; lower --state-context, or use --state-dtype bf16, --weight-dtype bf16, a smaller model or "
      "a larger GPU"));
}

}  // namespace rivulet
