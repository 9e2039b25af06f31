// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What AnnaHash::Apply hands to the SIMD code, which is compiled once a target. Private to this
// folder.
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_KERNEL_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_KERNEL_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"

namespace rivulet {

// Tokens of one task at most: they share what is read of the projections while it is in the first
// cache.
inline constexpr size_t kHashTokens = 16;

// One head of at most kHashTokens tokens: [0] are the queries, [1] the keys.
struct HashRows {
  ConstFloatMatrix vectors[2];  // [T, d]
  FloatMatrix buckets[2];       // [T, ℓ]

  size_t tokens() const { return vectors[0].rows; }
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_HASH_KERNEL_H_
