// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Four adjacent numbers of a row that may begin anywhere and have any length.
#ifndef RIVULET_KERNELS_DEVICE_FOURS_CUH_
#define RIVULET_KERNELS_DEVICE_FOURS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/base/tensor_view.h"

namespace rivulet::cuda {

// numbers[first .. first + 4), zeros from `count` on. `aligned`: rows begin at 16 bytes, and
// `count` is a multiple of four.
__device__ inline float4 LoadFour(const float* numbers, uint32_t first, uint32_t count,
                                  bool aligned) {
  float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
  if (first >= count) return four;
  if (aligned) return *reinterpret_cast<const float4*>(numbers + first);
  four.x = numbers[first];
  if (first + 1 < count) four.y = numbers[first + 1];
  if (first + 2 < count) four.z = numbers[first + 2];
  if (first + 3 < count) four.w = numbers[first + 3];
  return four;
}

// Whether rows of a matrix with that many columns are `aligned` in this sense.
inline bool Aligned(const ConstFloatMatrix& x, uint32_t columns) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0 && columns % 4 == 0;
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_FOURS_CUH_
