// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "server/engine/device_states.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace rivulet {
namespace {

class NoStateMemory final : public StateMemory {
 public:
  absl::Status Reserve(size_t /*bytes*/) override { return absl::OkStatus(); }
  std::byte* begin() const override { return nullptr; }
  void Copy(size_t /*from*/, size_t /*to*/, size_t /*bytes*/) override {}
};

}  // namespace

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

absl::StatusOr<std::unique_ptr<StatePool>> PoolWithoutMemory(const StateCapacity& sizes,
                                                             uint64_t state_context) {
  constexpr uint64_t kEnough = uint64_t{1} << 44;
  for (uint64_t bytes = uint64_t{1} << 26;; bytes *= 4) {  // until a session fits
    auto pool = StatePool::Make(sizes, bytes, state_context, std::make_unique<NoStateMemory>());
    if (!absl::IsResourceExhausted(pool.status()) || bytes >= kEnough) return pool;
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
