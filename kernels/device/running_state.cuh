// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Where a state that is kept after every token is (running_state_operations.h).
#ifndef RIVULET_KERNELS_DEVICE_RUNNING_STATE_CUH_
#define RIVULET_KERNELS_DEVICE_RUNNING_STATE_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_types.h"

namespace rivulet::cuda {

// A segment's state: where it is before its first token and where a token leaves it.
struct RunningState {
  const std::byte* from;  // null: zeros
  std::byte* base;        // that a fold writes
  std::byte* tail;
  uint32_t tokens;
  uint32_t border;  // tokens of the segment up to its last chunk border; 0: it reaches none
};

template <typename Call>
__device__ RunningState StateOf(const Call& call, const DeviceSegment& segment) {
  const auto start = static_cast<uint32_t>(segment.position % call.fold_interval);
  const auto base = [&](uint32_t slot) {
    return call.slots.bases + slot * call.slots.base_stride + call.base_offset;
  };
  std::byte* const tail =
      call.slots.tails + segment.tail * call.slots.tail_stride + call.tail_offset;
  const uint32_t end = start + segment.tokens, folded = end / call.fold_interval;
  return {.from = segment.position == 0 ? nullptr
                  : start == 0          ? base(segment.base_in)
                                        : tail,
          .base = base(segment.base_out),
          .tail = tail,
          .tokens = segment.tokens,
          .border = folded == 0 ? 0 : folded * call.fold_interval - start};
}

// Where the state goes after token `done - 1` of its segment, if it goes anywhere: to the base at
// the last border, to the tail at the end.
__device__ inline std::byte* PlaceAfter(const RunningState& state, uint32_t done) {
  if (done == state.border) return state.base;
  return done == state.tokens ? state.tail : nullptr;
}

// The same of a segment whose earlier folds may have bases of their own. Where they have none, what
// they leave is never read, so it is not written.
template <typename Call>
__device__ std::byte* PlaceWithin(const Call& call, const DeviceSegment& segment,
                                  const RunningState& state, uint32_t done) {
  std::byte* const to = PlaceAfter(state, done);
  if (to != nullptr || call.rows.fold_bases == nullptr) return to;
  const auto start = static_cast<uint32_t>(segment.position % call.fold_interval);
  if ((start + done) % call.fold_interval != 0) return nullptr;
  const uint32_t slot = call.rows.fold_bases[segment.first_token + done - 1];
  if (slot == segment.base_out) return nullptr;
  return call.slots.bases + slot * call.slots.base_stride + call.base_offset;
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_RUNNING_STATE_CUH_
