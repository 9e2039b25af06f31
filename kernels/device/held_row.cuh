// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A row over the threads of a block, and its norm. Every kernel that norms rows of the residual
// stream uses this: the row of a token may go through one kernel in a prompt and through another in
// a decode step (a residual sum with its norm, or one after the other), and both must add up in the
// same order.
#ifndef RIVULET_KERNELS_DEVICE_HELD_ROW_CUH_
#define RIVULET_KERNELS_DEVICE_HELD_ROW_CUH_

#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/device_operations.h"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {

// Thread t of n has fours t and t + n of a row, so all loads of a row run at once. n depends on the
// row's length alone, and with it the order of sums.
constexpr uint32_t kHeldFours = 2;

constexpr uint32_t ThreadsFor(uint32_t columns) {
  constexpr uint32_t kOfAWarp = 32 * 4 * kHeldFours;
  return (columns + kOfAWarp - 1) / kOfAWarp * 32;
}
constexpr uint32_t kMostThreads = ThreadsFor(kMostNormedWidth);
static_assert(kMostThreads == 1024);

// Sums of a block: one for each time that a kernel adds up.
using Scratch = float[6][32];

// The sum over the threads of a block, in each of them. No other sum has used `scratch`.
__device__ inline float SumOfBlock(float x, float (&scratch)[32]) {
  const uint32_t lane = threadIdx.x % 32;
  x = WarpSum(x);
  if (lane == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  return WarpSum(lane < blockDim.x / 32 ? scratch[lane] : 0.0f);
}

__device__ inline float& At(float4& x, int i) { return reinterpret_cast<float*>(&x)[i]; }
__device__ inline float At(const float4& x, int i) { return reinterpret_cast<const float*>(&x)[i]; }

// numbers[first .. first + 4), zeros from `count` on. kAligned: `count` is a multiple of four, and
// rows begin at 16 bytes.
template <bool kAligned>
__device__ inline float4 ReadFour(const float* numbers, uint32_t first, uint32_t count) {
  float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
  if constexpr (kAligned) {
    four = ReadLate(reinterpret_cast<const float4*>(numbers + first));
  } else {
    for (int k = 0; k < 4 && first + k < count; ++k) At(four, k) = ReadLate(numbers + first + k);
  }
  return four;
}

template <bool kAligned>
__device__ inline void WriteFour(float* numbers, uint32_t first, uint32_t count, float4 four) {
  if constexpr (kAligned) {
    StoreFour(numbers + first, four);
  } else {
    for (int k = 0; k < 4 && first + k < count; ++k) numbers[first + k] = At(four, k);
  }
}

// What a norm makes of a number, without weight and bias: (x - mean) · scale.
struct RowNorm {
  float mean, scale;
};

// Of a row of `columns` numbers, zeros behind it. centred: LayerNorm, otherwise RMSNorm, whose mean
// is 0. No other sum has used the scratch of the two.
__device__ inline RowNorm NormOfRow(const float4 (&row)[kHeldFours], uint32_t columns, bool centred,
                                    float eps, float (&mean_scratch)[32],
                                    float (&square_scratch)[32]) {
  const auto count = static_cast<float>(columns);
  float sum = 0.0f, squares = 0.0f, mean = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kHeldFours; ++j) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sum += At(row[j], k);
      squares = fmaf(At(row[j], k), At(row[j], k), squares);
    }
  }
  if (centred) {
    mean = SumOfBlock(sum, mean_scratch) / count;
    squares = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < kHeldFours; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const bool is_there = (threadIdx.x + j * blockDim.x) * 4 + k < columns;
        const float d = is_there ? At(row[j], k) - mean : 0.0f;
        squares = fmaf(d, d, squares);
      }
    }
  }
  return {mean, 1.0f / sqrtf(SumOfBlock(squares, square_scratch) / count + eps)};
}

// What a thread adds up for the factor of a row.
__device__ inline float SquaresOfThread(const RowFactor& factor, uint32_t token) {
  float sum = 0.0f;
  if (factor.squares == nullptr) return sum;
  const float* squares = factor.squares + size_t{token} * factor.stride;
  for (uint32_t i = threadIdx.x; i < factor.count; i += blockDim.x) sum += ReadLate(squares + i);
  return sum;
}

// The factor, from what each thread of the block added up. No other sum has used `scratch`.
__device__ inline float FactorOf(const RowFactor& factor, float squares, float (&scratch)[32]) {
  if (factor.squares == nullptr) return 1.0f;
  const float mean = SumOfBlock(squares, scratch) / static_cast<float>(factor.width);
  return 1.0f / sqrtf(mean + factor.eps);
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_HELD_ROW_CUH_
