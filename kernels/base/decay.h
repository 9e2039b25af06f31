// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the decay of a sum is made of (docs/recurrences.md).
#ifndef RIVULET_KERNELS_BASE_DECAY_H_
#define RIVULET_KERNELS_BASE_DECAY_H_

#include <cstdint>

namespace rivulet {

enum class Decay : uint8_t {
  kNone,
  kScalar,   // one number for a head and token
  kChannel,  // one for each key channel
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_DECAY_H_
