// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What a part of a row needs between a product and a recurrence (PreparedPart), and the arithmetic
// that the kernels which do it share: prepare.cu, and those of a recurrence that prepare the rows
// they read (row_convolution.cuh).
#ifndef RIVULET_KERNELS_DEVICE_PREPARED_PARTS_CUH_
#define RIVULET_KERNELS_DEVICE_PREPARED_PARTS_CUH_

#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/device_operations.h"

namespace rivulet::cuda {

__host__ __device__ inline bool ByHead(const PreparedPart& part) {
  return part.norm != DeviceHeadNorm::kNone || part.padded != part.width || part.head_stride != 0;
}

// The functions that take no call, before which registers would have to be saved.
constexpr bool IsShort(Activation f) {
  return f == Activation::kIdentity || f == Activation::kSilu;
}

// Heads of up to so many numbers are prepared with fewer registers.
constexpr uint32_t kNarrow = 128;

// Whether a part is prepared four channels a lane, with nothing after the convolution but a short
// function, a norm and a factor. It does not depend on the step, and so the order of a norm's sums
// does not.
__host__ __device__ inline bool InFours(const PrepareCall& call, const PreparedPart& part) {
  const DeviceConvolution& c = call.convolution;
  const auto aligned = [](const float* x, uint32_t stride) {
    return reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride % 4 == 0;
  };
  const uint32_t width = ByHead(part) ? part.width : part.heads * part.width;
  return part.channel >= 0 && part.channel % 4 == 0 && c.window == 4 && c.gate == nullptr &&
         part.bias == nullptr && part.rate == nullptr && part.multiplier == nullptr &&
         IsShort(part.f) && isinf(part.low) && isinf(part.high) && width % 4 == 0 &&
         part.padded % 4 == 0 && (!ByHead(part) || max(part.width, part.padded) <= kNarrow) &&
         aligned(c.x, c.x_stride) && aligned(part.y, part.y_stride);
}

// Whether it is what the convolution and SiLU make, without more.
inline bool IsPlain(const PrepareCall& call, const PreparedPart& part) {
  return InFours(call, part) && !ByHead(part) && call.convolution.silu &&
         part.f == Activation::kIdentity && part.norm_weight == nullptr && part.scale == 1.0f;
}

__device__ inline float4 Fused(float4 a, float4 b, float4 c) {
  return {fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z), fmaf(a.w, b.w, c.w)};
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PREPARED_PARTS_CUH_
