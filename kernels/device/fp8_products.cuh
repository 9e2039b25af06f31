// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What kernels of products with fp8 weights share: how e4m3 numbers become bf16 ones, and where
// weights lie in shared memory.
#ifndef RIVULET_KERNELS_DEVICE_FP8_PRODUCTS_CUH_
#define RIVULET_KERNELS_DEVICE_FP8_PRODUCTS_CUH_

#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/fp8_products.h"

namespace rivulet::cuda::fp8 {

constexpr uint32_t kStageInputs = kFloat8Alignment;  // k of one stage: 128 bytes of a row
constexpr int kSteps = kStageInputs / 16;

// Two adjacent ones of four e4m3 numbers as bf16: first 0 or 2. Each becomes the lower byte of a
// half whose upper byte is its sign, eight times. Shifted by four bits, exponent and mantissa are
// those of a bf16 number, which is 2^-120 of what is meant, subnormal numbers included; the product
// with 2^120 is exact.
template <int kFirst>
__device__ inline uint32_t WidenTwo(uint32_t codes) {
  constexpr uint32_t kSignOf = 8;  // of a byte, as `prmt` selects it
  constexpr uint32_t kSelect =
      kFirst | (kFirst + kSignOf) << 4 | (kFirst + 1) << 8 | (kFirst + 1 + kSignOf) << 12;
  uint32_t spread, wide;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(spread) : "r"(codes), "n"(kSelect));
  const uint32_t small = spread << 4 & 0x87f087f0u;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(wide) : "r"(small), "r"(0x7b807b80u));
  return wide;
}

// Four adjacent e4m3 numbers, in order.
__device__ inline uint2 WidenFour(uint32_t codes) {
  return {WidenTwo<0>(codes), WidenTwo<2>(codes)};
}

// A row of a stage of weights: 8 chunks of 16 bytes, a chunk for a k16 step, exchanged so that
// eight rows are read without bank conflicts. A lane reads numbers 4t to 4t + 3 of a step, as in
// products.cu.
__device__ inline uint32_t WeightPlace(uint32_t row, uint32_t chunk) {
  return row * kStageInputs + (chunk ^ (row % 8)) * 16;
}

__device__ inline uint2 StageWeights(const uint8_t* stage, uint32_t tile, uint32_t step) {
  const uint32_t lane = threadIdx.x % 32, row = tile * 8 + lane / 4;
  return WidenFour(
      *reinterpret_cast<const uint32_t*>(stage + WeightPlace(row, step) + lane % 4 * 4));
}

// --- eight outputs of a warp ------------------------------------------------------------------

constexpr int kFewStages = 16;
constexpr uint32_t kFewStageBytes = 8 * kStageInputs;

// One stage of a warp's eight outputs.
__device__ inline void LoadFew(const DeviceLinear& linear, uint32_t output, uint32_t k,
                               uint8_t* stage) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t row = (i * 32 + lane) / 8, chunk = lane % 8;
    const uint32_t source = min(output + row, linear.outputs - 1);
    CopyAsync(stage + WeightPlace(row, chunk),
              linear.float8 + static_cast<size_t>(source) * linear.stride + k + chunk * 16);
  }
}

}  // namespace rivulet::cuda::fp8

#endif  // RIVULET_KERNELS_DEVICE_FP8_PRODUCTS_CUH_
