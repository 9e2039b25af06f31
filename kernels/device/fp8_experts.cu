// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Products with experts' fp8 weights: the chains of experts.cu over widened weights, scaled once.
//
// Bytes expected: those of experts.cu, half of them.
#include "kernels/device/experts.cuh"
#include "kernels/device/fp8_products.cuh"
#include "kernels/device/products.cuh"

namespace rivulet::cuda {
namespace {

constexpr size_t kShared = size_t{kWarps} * fp8::kFewStages * fp8::kFewStageBytes;
constexpr int kHalves = fp8::kStageInputs / kStageInputs;  // of TokenNumbers in a stage

__device__ DeviceLinear MapOf(const DeviceLinear& first, uint32_t expert) {
  DeviceLinear map = first;
  const size_t output = static_cast<size_t>(expert) * first.outputs;
  map.float8 += output * first.stride;
  map.scale += output;
  return map;
}

// The chains of a tile's rows and the warp's eight outputs.
__device__ void RunChains(const DeviceLinear& map, const TileRows<1>& rows, uint32_t output,
                          uint8_t* ring, float (&sum)[4]) {
  constexpr int kRing = fp8::kFewStages;
  const uint32_t stages = map.stride / fp8::kStageInputs;
  for (uint32_t i = 0; i < kRing - 1; ++i) {
    if (i < stages) {
      fp8::LoadFew(map, output, i * fp8::kStageInputs, ring + i * fp8::kFewStageBytes);
    }
    CommitCopies();
  }
  TokenNumbers<1, 1> tokens, next;
  next.Load(rows, 0);
  for (uint32_t i = 0; i < stages; ++i) {
    WaitForCopies<kRing - 2>();
    __syncwarp();
    const uint32_t ahead = i + kRing - 1;
    if (ahead < stages) {
      fp8::LoadFew(map, output, ahead * fp8::kStageInputs,
                   ring + ahead % kRing * fp8::kFewStageBytes);
    }
    CommitCopies();
    const uint8_t* stage = ring + i % kRing * fp8::kFewStageBytes;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      tokens = next;
      next.Load(rows, (i * kHalves + half + 1) * kStageInputs);
#pragma unroll
      for (int step = 0; step < kStageInputs / 16; ++step) {
        const uint2 weights = fp8::StageWeights(stage, 0, half * (kStageInputs / 16) + step);
        MultiplyAdd(sum, tokens.a[step][0][0], weights.x, weights.y);
      }
    }
  }
}

// A warp's eight outputs of a tile.
__global__ void __launch_bounds__(kWarps * 32)
    Float8ExpertProductKernel(const __grid_constant__ ExpertProductCall call) {
  extern __shared__ __align__(128) uint8_t fp8_shared[];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t output = (blockIdx.x * kWarps + warp) * 8;
  AllowNextKernel();
  if (output >= call.map.outputs) return;
  AwaitLastKernel();  // which wrote the tiles
  const ExpertTile tile = call.routing.tiles[blockIdx.y];
  if (tile.rows == 0) return;
  const DeviceLinear map = MapOf(call.map, tile.expert);
  const TileRows<1> rows(call, tile);
  float sum[4] = {};
  RunChains(map, rows, output, fp8_shared + warp * fp8::kFewStages * fp8::kFewStageBytes, sum);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t column = output + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 * 8;
    if (column >= map.outputs || row >= tile.rows) continue;
    call.y.data[(tile.first_row + row) * call.y.stride + column] = sum[i] * map.scale[column];
  }
}

}  // namespace

void LaunchFloat8ExpertProduct(const ExpertProductCall& call, const LaunchContext& context) {
  static const cudaError_t prepared =
      cudaFuncSetAttribute(Float8ExpertProductKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(kShared));
  context.Check(prepared);
  constexpr uint32_t kOutputs = kWarps * 8;
  const dim3 grid((call.map.outputs + kOutputs - 1) / kOutputs, call.routing.most_tiles);
  context.Run(Float8ExpertProductKernel, grid, kWarps * 32, kShared, call);
}

}  // namespace rivulet::cuda
