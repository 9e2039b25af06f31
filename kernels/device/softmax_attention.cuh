// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of softmax attention share.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENTION_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENTION_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/softmax_operations.h"
#include "kernels/device/warp_scan.cuh"

namespace rivulet::cuda::softmax {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kWarps = 4;  // of a block of the grid
constexpr uint32_t kThreads = kWarps * 32;

constexpr float kNothing = -__builtin_huge_valf();

// The slot of a page that the segment reads or writes.
__device__ inline uint32_t SlotOf(const AttendCall& c, const DeviceSegmentPages& pages,
                                  uint64_t page) {
  return c.pages.slots[pages.first + static_cast<uint32_t>(page - pages.first_page)];
}

// --- loads ---------------------------------------------------------------------------------------

__device__ inline void LoadMatrices(uint32_t (&r)[4], const bf16* row) {
  cuda::LoadMatrices(r, SharedAddress(row));
}

// Eight neighbours, and the two parts of each.
__device__ inline void LoadEight(float (&x)[8], const float* from) {
  *reinterpret_cast<float4*>(x) = *reinterpret_cast<const float4*>(from);
  *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<const float4*>(from + 4);
}
__device__ inline void SplitEight(const float (&x)[8], uint4& high, uint4& low) {
  Split(x[0], x[1], high.x, low.x);
  Split(x[2], x[3], high.y, low.y);
  Split(x[4], x[5], high.z, low.z);
  Split(x[6], x[7], high.w, low.w);
}

// Eight neighbours to shared memory: in the background, with a policy of L2 or without one,
// or as two parts.
template <bool kHasPolicy>
__device__ inline void CopyEight(bf16* to, size_t /*plane*/, const bf16* from, uint64_t policy) {
  kHasPolicy ? CopyAsync(SharedAddress(to), from, policy) : CopyAsync(to, from);
}
template <bool kHasPolicy>
__device__ inline void CopyEight(bf16* to, size_t plane, const float* from, uint64_t /*policy*/) {
  float x[8];
  LoadEight(x, from);
  uint4 high, low;
  SplitEight(x, high, low);
  *reinterpret_cast<uint4*>(to) = high;
  *reinterpret_cast<uint4*>(to + plane) = low;
}

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENTION_CUH_
