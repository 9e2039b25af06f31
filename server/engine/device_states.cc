// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_states.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace rivulet {
namespace {

constexpr const char* kWhatHelps = "--dtype fp8, a smaller model or a larger GPU";

}  // namespace

absl::Status DeviceStateMemory::Reserve(size_t bytes) {
  RIVULET_ASSIGN_OR_RETURN(void* memory, device_->Allocate(bytes));
  begin_ = static_cast<std::byte*>(memory);
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

absl::Status NoRoomFor(const char* what, const absl::Status& status) {
  if (!absl::IsResourceExhausted(status)) return status;
  if (LeastStateMemory(status).has_value()) return status;  // says it itself
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for ", what, ": ", status.message(),
                   "; use a smaller --state-memory if it is given, ", kWhatHelps));
}

absl::Status NoRoomForStates(const Device& device, uint64_t weights, uint64_t left, uint64_t kept,
                             uint64_t state_context, const absl::Status& why) {
  const std::optional<uint64_t> least = LeastStateMemory(why);
  if (!least.has_value()) return why;
  return absl::ResourceExhaustedError(absl::StrCat(
      "no room for session states: one session with --state-context ", state_context,
      " tokens needs ", *least, " bytes, and ", left, " are left of ", device.name(), ", where ",
      weights, " are weights, ", device.allocated_bytes() - weights, " temporaries, and ", kept,
      " stay free; use --state-dtype bf16, a smaller --state-context, ", kWhatHelps));
}

}  // namespace rivulet
