// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The rows of a product of few tokens, held by each block.
#ifndef RIVULET_KERNELS_DEVICE_HELD_TOKENS_CUH_
#define RIVULET_KERNELS_DEVICE_HELD_TOKENS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"

namespace rivulet::cuda {

// The numbers of up to 16 tokens in shared memory, all of K: rows of `stride` numbers, a multiple
// of 64 plus 8 so that rows begin in different banks.
__device__ inline void HoldTokens(const Operand& x, uint32_t inputs, uint32_t stride, bf16* to) {
  const uint32_t steps = inputs / 8;
  for (uint32_t i = threadIdx.x; i < x.rows * steps; i += blockDim.x) {
    const uint32_t token = i / steps, column = i % steps * 8;
    uint4 numbers = {0, 0, 0, 0};
    if (column < x.columns) {
      numbers =
          *reinterpret_cast<const uint4*>(x.data + static_cast<size_t>(token) * x.stride + column);
    }
    *reinterpret_cast<uint4*>(to + token * stride + column) = numbers;
  }
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_HELD_TOKENS_CUH_
