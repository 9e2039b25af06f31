// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests: all bytes of one slot of a pool in host memory.
#ifndef RIVULET_SERVER_ENGINE_SLOT_BYTES_H_
#define RIVULET_SERVER_ENGINE_SLOT_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/engine/state_pool.h"

namespace rivulet {

// The first layer's planes begin where the slot begins.
inline std::span<std::byte> BaseBytes(const StatePool& pool, uint32_t slot) {
  return {pool.Layer(0).Base<std::byte>(slot, 0), pool.capacity().base_bytes};
}

inline std::span<std::byte> TailBytes(const StatePool& pool, uint32_t slot) {
  return {pool.Layer(0).Tail<std::byte>(slot, 0), pool.capacity().tail_bytes};
}

}  // namespace rivulet

#endif  // RIVULET_SERVER_ENGINE_SLOT_BYTES_H_
