// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Pool selection on a device (kernels/mixers/pool_selection): keys of pools of P tokens, and the
// pools that each token sees. Attention over them: softmax_operations.h.
//
// Bits: a pool's key and a score have one order of fp32 operations each, and a choice compares
// scores alone. So it depends on the session's tokens.
//
// Letters: T tokens, C tokens of a chunk, D numbers of a key, Dp rounded up to 16, H heads of the
// scores, K pools that a token sees.
#ifndef RIVULET_KERNELS_DEVICE_POOL_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_POOL_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// What the kernel of the choice has room for in shared memory.
inline constexpr size_t kMostDeviceIndexDim = 256;
inline constexpr size_t kMostDeviceIndexHeads = 64;
inline constexpr size_t kMostChosenPools = 2048;

// Where keys of pools are: base of both calls.
struct PoolPlanes {
  DeviceRows rows;
  DeviceSlots slots;
  DevicePages pages;
  uint32_t pool = 0;      // P, divides C
  uint32_t key_dim = 0;   // D
  uint32_t padded = 0;    // Dp
  size_t tail_pools = 0;  // tail plane [C / P, Dp], fp32
  size_t page_pools = 0;  // page plane [C / P, Dp], fp32
};

// Appends the step's keys, and makes the keys of the pools that it fills:
//
//   gated   Σ_i softmax_i(g_i + a_i) ∘ k_i over the pool's tokens, channel by channel
//   plain   rotated(rms(Σ_i k_i / P) ∘ norm_weight), as if it stood at the pool's first token
struct PoolKeysCall {
  PoolPlanes planes;
  ConstFloatMatrix k;                  // [T, D]
  ConstFloatMatrix gates = {};         // [T, D]; null data: plain
  const float* biases = nullptr;       // a [P, Dp]
  const float* norm_weight = nullptr;  // [D]
  float norm_eps = 0;
  const float* frequencies = nullptr;  // [half], as in RotateCall
  uint32_t half = 0;
  float amplitude = 1;
  size_t tail_keys = 0, tail_gates = 0;  // tail planes [C, Dp], fp32
};

// chosen [T, 1 + K]: of the pools that are full once the token is there, how many it sees, and
// their numbers ascending. The K with the largest Σ_h w_h relu(q_h · key); NaN counts as the
// largest, of equal scores the earlier pool comes first. After PoolKeys.
struct ChoosePoolsCall {
  PoolPlanes planes;
  uint32_t most = 0;              // K
  uint32_t heads = 0;             // H
  ConstFloatMatrix q;             // [T, H · head_stride]
  uint32_t head_stride = 0;       // at least D
  ConstFloatMatrix weights = {};  // [T, H]; null data: ones
  FloatMatrix chosen;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_POOL_OPERATIONS_H_
