// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Operations of ANNA (kernels/mixers/anna): the buckets of queries and keys, and a state that is
// the sum and the number of the values in each bucket.
//
// Bits: a projection is one chain of fp32 fused multiply-adds over ascending coordinates, as on the
// CPU, so a token's bucket depends on its query or key alone. An output number is one chain: the
// query's buckets, tables ascending, then the tail's rows that collide, ascending; then one
// division. A bucket's number is one chain of additions, rows ascending. Decoding and prefill are
// the same code.
//
// Letters: T tokens, H heads, ℓ tables a head, z hashes a table, B buckets a table, D key width,
// E value width, Ep padded to 16, C = 16. Numbers of buckets are whole numbers in fp32. All
// pointers are to device memory.
#ifndef RIVULET_KERNELS_DEVICE_BUCKETS_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_BUCKETS_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// What a block's shared memory holds (BucketsCall). The tables of a head have fewer than 2^32
// numbers (kMaxBucketBytes, kernels/mixers/anna).
inline constexpr uint32_t kMostBucketValues = 2048;

// The buckets of queries and keys (kernels/mixers/anna/anna_hash.h).
struct HashCall {
  ConstFloatMatrix q, k;  // [T, H·D]
  // [H][groups][outputs / 16 rounded up][D][16]: SimHash has one group of ℓ·z outputs, and
  // cross-polytope ℓ·z groups of D.
  const float* panels = nullptr;
  bool cross_polytope = false;
  uint32_t heads = 0, key_dim = 0, tables = 0, hashes = 0;
  FloatMatrix q_buckets, k_buckets;  // [T, H·ℓ]
};

// Read and fold (kernels/mixers/anna/anna_recurrence.h).
struct BucketsCall {
  DeviceRows rows;
  DeviceSlots slots;
  uint32_t heads = 0, tables = 0, buckets = 0, value_dim = 0, padded_value = 0;
  bool include_self = true;
  ConstFloatMatrix q_buckets, k_buckets;  // [T, H·ℓ]
  ConstFloatMatrix v;                     // [T, H·E]
  // Planes: base [H, ℓ, B, Ep] and [H, ℓ, B] fp32; tail [H, ℓ, C] fp32 and [H, C, Ep] of the rows'
  // dtype.
  size_t sums_offset = 0, counts_offset = 0;
  size_t keys_offset = 0, values_offset = 0;
  FloatMatrix out;  // [T, H·Ep]
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_BUCKETS_OPERATIONS_H_
