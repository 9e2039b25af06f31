// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a lane and all lanes before it have, joined.
#ifndef RIVULET_KERNELS_DEVICE_WARP_SCAN_CUH_
#define RIVULET_KERNELS_DEVICE_WARP_SCAN_CUH_

#include <cstdint>

namespace rivulet::cuda {

constexpr uint32_t kAllLanes = 0xffffffffu;

// By a whole warp, of which this is lane `lane`. `join`(what is before, x) has to be associative
// for the numbers at hand: whole numbers' sums, or largest numbers.
template <typename T, typename Join>
__device__ T WarpScan(T x, uint32_t lane, Join&& join) {
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    const T before = __shfl_up_sync(kAllLanes, x, step);
    if (lane >= step) x = join(before, x);
  }
  return x;
}

// The sum of the lanes up to this one.
template <typename T>
__device__ T WarpScan(T x, uint32_t lane) {
  return WarpScan(x, lane, [](T before, T own) { return own + before; });
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_WARP_SCAN_CUH_
