// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of products share: a warp's ring of weights in shared memory, and its chains. A
// warp owns 8·kOutputTiles outputs and walks all of K.
//
// The 16 numbers of a k16 step are permuted (lane t takes numbers 4t to 4t + 3), in weights and
// tokens alike, so that each lane reads 8 bytes at a time.
#ifndef RIVULET_KERNELS_DEVICE_PRODUCTS_CUH_
#define RIVULET_KERNELS_DEVICE_PRODUCTS_CUH_

#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {

constexpr int kWarps = 4;
constexpr int kStageInputs = 64;  // k of one stage of the ring: 128 bytes of a row

template <int kOutputTiles>
constexpr int kStages = kOutputTiles == 1 ? 16 : 8;

// From a row's first parts to its second ones: all columns of the operand, of which `rows` may have
// fewer.
template <typename Rows>
__device__ inline uint32_t PartOffset(const Rows& rows) {
  if constexpr (requires { rows.part_offset(); }) {
    return rows.part_offset();
  } else {
    return rows.columns();
  }
}

// A stage's numbers of the tokens as the instruction wants them.
template <int kTokenTiles, int kParts>
struct TokenNumbers {
  uint32_t a[kStageInputs / 16][kParts][kTokenTiles][4];

  // Inputs from `k` on; zeros outside.
  template <typename Rows>
  __device__ void Load(const Rows& rows, uint32_t k) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < kStageInputs / 16; ++step) {
      const uint32_t column = k + step * 16 + lane % 4 * 4;
      const bool inside = column < rows.columns();
#pragma unroll
      for (uint32_t i = 0; i < kParts * kTokenTiles * 2; ++i) {
        const uint32_t half = i % 2, tile = i / 2 % kTokenTiles, part = i / 2 / kTokenTiles;
        uint2 numbers = {0, 0};
        if (inside && rows.Has(tile * 2 + half)) {
          numbers = *reinterpret_cast<const uint2*>(rows.Row(tile * 2 + half) +
                                                    part * PartOffset(rows) + column);
        }
        a[step][part][tile][half] = numbers.x;
        a[step][part][tile][half + 2] = numbers.y;
      }
    }
  }
};

// The weights of one stage, in the background: rows of 8 chunks of 16 bytes, exchanged so that four
// rows are read without bank conflicts.
template <int kOutputTiles>
__device__ void LoadWeights(const uint16_t* weights, uint32_t stride, uint32_t output,
                            uint32_t outputs, uint32_t k, bf16* stage) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kOutputTiles * 2; ++i) {
    const uint32_t chunk = i * 32 + lane, row = chunk / 8, place = chunk % 8;
    const uint32_t source = min(output + row, outputs - 1);
    CopyAsync(stage + row * kStageInputs + (place ^ (row % 4 * 2)) * 8,
              weights + static_cast<size_t>(source) * stride + k + place * 8);
  }
}

template <int kOutputTiles>
__device__ void LoadRing(const DeviceLinear& linear, uint32_t output, uint32_t k, bf16* stage,
                         bool two_parts) {
  LoadWeights<kOutputTiles>(linear.high, linear.stride, output, linear.outputs, k, stage);
  if (!two_parts) return;
  LoadWeights<kOutputTiles>(linear.low, linear.stride, output, linear.outputs, k,
                            stage + kOutputTiles * 8 * kStageInputs);
}

__device__ inline uint2 StageWeights(const bf16* stage, uint32_t tile, uint32_t step) {
  const uint32_t lane = threadIdx.x % 32, row = tile * 8 + lane / 4, t = lane % 4;
  const uint32_t chunk = (step * 2 + t / 2) ^ (row % 4 * 2);
  return *reinterpret_cast<const uint2*>(stage + row * kStageInputs + chunk * 8 + t % 2 * 4);
}

// Of one stage of a warp's ring.
template <int kOutputTiles, int kParts>
constexpr int kStageNumbers = kParts* kOutputTiles * 8 * kStageInputs;

// The ring of a warp in ProductKernel and its like, and the block's shared memory.
template <int kOutputTiles, int kParts>
constexpr int kRingStages = kStages<kOutputTiles> / kParts;
template <int kOutputTiles, int kParts>
constexpr size_t kRingBytes =
    sizeof(bf16) * kWarps* kRingStages<kOutputTiles, kParts>* kStageNumbers<kOutputTiles, kParts>;

// Starts the copies of the first weights of outputs from `output` on.
template <int kOutputTiles, int kParts>
__device__ void StartRing(const DeviceLinear& linear, uint32_t output, bf16* ring) {
  constexpr int kStageSize = kStageNumbers<kOutputTiles, kParts>;
  const uint32_t stages = linear.stride / kStageInputs;
  for (uint32_t i = 0; i < kRingStages<kOutputTiles, kParts> - 1; ++i) {
    if (i < stages) {
      LoadRing<kOutputTiles>(linear, output, i * kStageInputs, ring + i * kStageSize, kParts == 2);
    }
    CommitCopies();
  }
}

// sum += the chains of 16 · kTokenTiles rows and 8 · kOutputTiles outputs from `output` on, after
// StartRing. Rows: columns(), and for slot s < 2 · kTokenTiles whether the lane's row 8s + lane / 4
// is there (Has) and where it begins (Row).
template <int kTokenTiles, int kOutputTiles, int kParts, typename Rows>
__device__ void RunChains(const DeviceLinear& linear, const Rows& rows, uint32_t output, bf16* ring,
                          float (&sum)[kTokenTiles][kOutputTiles][4]) {
  constexpr int kStageSize = kStageNumbers<kOutputTiles, kParts>;
  constexpr int kRing = kRingStages<kOutputTiles, kParts>;
  const uint32_t stages = linear.stride / kStageInputs;
  // One stage ahead where registers allow it, since the first warp that reads a line waits for L2.
  constexpr bool kAhead = kTokenTiles * kParts <= 2;
  TokenNumbers<kTokenTiles, kParts> tokens, next;
  if constexpr (kAhead) next.Load(rows, 0);
  for (uint32_t i = 0; i < stages; ++i) {
    if constexpr (kAhead) {
      tokens = next;
      next.Load(rows, (i + 1) * kStageInputs);
    } else {
      tokens.Load(rows, i * kStageInputs);
    }
    WaitForCopies<kRing - 2>();
    __syncwarp();
    if (i + kRing - 1 < stages) {
      LoadRing<kOutputTiles>(linear, output, (i + kRing - 1) * kStageInputs,
                             ring + (i + kRing - 1) % kRing * kStageSize, kParts == 2);
    }
    CommitCopies();
    const bf16* stage = ring + i % kRing * kStageSize;
#pragma unroll
    for (int step = 0; step < kStageInputs / 16; ++step) {
#pragma unroll
      for (int n = 0; n < kOutputTiles; ++n) {
        const uint2 high = StageWeights(stage, n, step);
#pragma unroll
        for (int m = 0; m < kTokenTiles; ++m) {
          MultiplyAdd(sum[m][n], tokens.a[step][0][m], high.x, high.y);
          if constexpr (kParts == 2) {
            const uint2 low = StageWeights(stage + kOutputTiles * 8 * kStageInputs, n, step);
            MultiplyAdd(sum[m][n], tokens.a[step][1][m], high.x, high.y);
            MultiplyAdd(sum[m][n], tokens.a[step][0][m], low.x, low.y);
          }
        }
      }
    }
  }
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PRODUCTS_CUH_
