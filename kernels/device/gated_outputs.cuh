// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Outputs of a recurrence that are gated where they are computed (GatedOutputs). Every kernel that
// does it uses this: the bits of a row must not depend on which of them computed it.
//
// Sixteen lanes have a number each of sixteen neighbours: the lane (g, half) has number
// g + 8 · half, since in that way the matrix instruction leaves them.
#ifndef RIVULET_KERNELS_DEVICE_GATED_OUTPUTS_CUH_
#define RIVULET_KERNELS_DEVICE_GATED_OUTPUTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"

namespace rivulet::cuda {

// The sum of the squares of the sixteen numbers, in each of their lanes. Lanes of neighbouring g
// are kNext apart, those of the two halves kHalf.
template <uint32_t kNext, uint32_t kHalf>
__device__ inline float SquaresOf(float x, bool second_half) {
  const float other = __shfl_xor_sync(0xffffffffu, x, kHalf);
  const float near = second_half ? other : x, far = second_half ? x : other;
  float sum = fmaf(far, far, near * near);
#pragma unroll
  for (uint32_t step = 1; step < 8; step *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step * kNext);
  }
  return sum;
}

__device__ inline void StoreSquares(const GatedOutputs& to, uint32_t token, uint32_t column,
                                    float squares) {
  to.squares[size_t{token} * to.squares_stride + column / GatedOutputs::kSquares] = squares;
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_GATED_OUTPUTS_CUH_
