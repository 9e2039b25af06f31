// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): random bits as a pure function of a key and a counter. It needs no state to keep, save or
// move with a session, and no order in which numbers must be drawn.
#ifndef RIVULET_KERNELS_OPS_SAMPLING_PHILOX_H_
#define RIVULET_KERNELS_OPS_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace rivulet {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter PhiloxRound(const PhiloxCounter& c, const PhiloxKey& key) {
  const uint64_t a = uint64_t{0xD2511F53u} * c[0];
  const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
  return {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
}

// 128 random bits.
constexpr PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    counter = PhiloxRound(counter, key);
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_SAMPLING_PHILOX_H_
