// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Scores of a block of tokens to weights (softmax_attention.cu): the softmax of one row so far.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_WEIGHTS_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_WEIGHTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/softmax_item.cuh"

namespace rivulet::cuda::softmax {

// Neighbours in shared memory, 8 to 32 bytes of them, in as few loads or stores as it takes.
template <uint32_t kCount>
__device__ void LoadNeighbours(float (&x)[kCount], const float* from) {
  if constexpr (kCount == 2) {
    *reinterpret_cast<float2*>(x) = *reinterpret_cast<const float2*>(from);
  } else {
    LoadEight(x, from);
  }
}

// As two parts of bf16, the second `distance` numbers behind the first.
template <int kParts>
__device__ void StoreParts(bf16* to, const float (&x)[2], uint32_t distance) {
  uint32_t high, low;
  Split(x[0], x[1], high, low);
  *reinterpret_cast<uint32_t*>(to) = high;
  if (kParts == 2) *reinterpret_cast<uint32_t*>(to + distance) = low;
}
template <int kParts>
__device__ void StoreParts(bf16* to, const float (&x)[8], uint32_t distance) {
  uint4 high, low;
  SplitEight(x, high, low);
  *reinterpret_cast<uint4*>(to) = high;
  if (kParts == 2) *reinterpret_cast<uint4*>(to + distance) = low;
}

// Σ p: eight tokens ascending, then one tree over eight sums, whichever lanes have them.
template <uint32_t kLanes, uint32_t kTokens>
__device__ float SumOfWeights(const float (&p)[kTokens]) {
  constexpr uint32_t kLanesOfEight = 8 / kTokens;
  const uint32_t first = threadIdx.x % 32 / kLanesOfEight * kLanesOfEight;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < 8; ++i) {
    const float own = p[i % kTokens];
    sum += kLanesOfEight == 1 ? own : __shfl_sync(kAllLanes, own, first + i / kTokens);
  }
#pragma unroll
  for (uint32_t step = kLanes / 2; step >= kLanesOfEight; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  return sum;
}

// By kLanes neighbouring lanes, of which this is number `lane`: a row's scores of a block, in
// place, to weights, bf16 in the first half of the row, the second parts behind them. m and l: of
// the row until then, and with the block. `sees`(i): whether the row sees the lane's token i.
// Returns what outputs until then are to be multiplied by.
template <uint32_t kLanes, int kParts, typename Sees>
__device__ float WeighRow(float* row, uint32_t lane, float& m, float& l, Sees&& sees) {
  constexpr uint32_t kTokens = kBlock / kLanes;
  float x[kTokens];
  LoadNeighbours(x, row + lane * kTokens);
  float top = kNothing;
#pragma unroll
  for (uint32_t i = 0; i < kTokens; ++i) {
    x[i] = sees(i) ? x[i] : kNothing;
    top = fmaxf(top, x[i]);
  }
#pragma unroll
  for (uint32_t step = kLanes / 2; step > 0; step /= 2) {
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
  }
  const float largest = fmaxf(m, top);
  // e^{kNothing - x} is zero for every number x, so no weight needs a branch.
  const float subtracted = largest == kNothing ? 0.0f : largest;
  const float scale = expf(m - subtracted);
#pragma unroll
  for (uint32_t i = 0; i < kTokens; ++i) {
    x[i] = expf(x[i] - subtracted);
    if (kParts == 1) x[i] = AsStored(static_cast<const bf16*>(nullptr), x[i]);
  }
  m = largest;
  l = fmaf(l, scale, SumOfWeights<kLanes>(x));
  __syncwarp();  // the row's scores have been read
  StoreParts<kParts>(reinterpret_cast<bf16*>(row) + lane * kTokens, x, kBlock);
  return scale;
}

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_WEIGHTS_CUH_
