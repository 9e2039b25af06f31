// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Bytes expected: outputs · stride of weights, once for each 128 tokens.
#include "kernels/device/fp8_products.cuh"
#include "kernels/device/fp8_products.h"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

using namespace fp8;

// 16 bytes from device to shared memory in the background, or zeros.
__device__ void CopyOrZero(void* shared, const void* global, bool copy) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = copy ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global),
               "r"(bytes));
}

// One number of the result.
__device__ void StoreResult(const DeviceLinear& linear, FloatMatrix y, uint32_t token,
                            uint32_t column, float sum) {
  const float scaled = sum * linear.scale[column];
  const float bias = linear.bias == nullptr ? 0.0f : linear.bias[column];
  y.data[static_cast<size_t>(token) * y.stride + column] = scaled + bias;
}

// --- tiles ---------------------------------------------------------------------------------------

// A block of kTokenWarps · kOutputWarps warps, each with kTokenTiles times 16 tokens and
// kOutputTiles times 8 outputs. Weights and tokens of a stage are in a ring of shared memory.
struct Tile {
  static constexpr int kTokenWarps = 2, kOutputWarps = 2, kTokenTiles = 4, kOutputTiles = 4;
  static constexpr int kRing = 4;
  static constexpr uint32_t kThreads = kTokenWarps * kOutputWarps * 32;
  static constexpr uint32_t kTokens = kTokenWarps * kTokenTiles * 16;
  static constexpr uint32_t kOutputs = kOutputWarps * kOutputTiles * 8;
  static constexpr uint32_t kWeightBytes = kOutputs * kStageInputs;
  static constexpr uint32_t kStageBytes = kWeightBytes + kTokens * kStageInputs * sizeof(bf16);
  static constexpr size_t kShared = size_t{kRing} * kStageBytes;
  static_assert(kOutputs * 8 % kThreads == 0 && kTokens * 16 % kThreads == 0, "whole copies");

  static __device__ void LoadWeights(const DeviceLinear& linear, uint32_t output, uint32_t k,
                                     uint8_t* stage) {
#pragma unroll
    for (uint32_t i = 0; i < kOutputs * 8 / kThreads; ++i) {
      const uint32_t index = i * kThreads + threadIdx.x, row = index / 8, chunk = index % 8;
      const uint32_t source = min(output + row, linear.outputs - 1);
      CopyAsync(stage + WeightPlace(row, chunk),
                linear.float8 + static_cast<size_t>(source) * linear.stride + k + chunk * 16);
    }
  }

  // A row of 16 chunks of eight numbers, exchanged so that four rows are read without bank
  // conflicts. Zeros where there is no token or no input.
  static __device__ void LoadTokens(const Operand& x, uint32_t first, uint32_t k, uint8_t* stage) {
    auto* tokens = reinterpret_cast<bf16*>(stage + kWeightBytes);
#pragma unroll
    for (uint32_t i = 0; i < kTokens * 16 / kThreads; ++i) {
      const uint32_t index = i * kThreads + threadIdx.x, row = index / 16, chunk = index % 16;
      const uint32_t column = k + chunk * 8;
      const bool there = first + row < x.rows && column < x.columns;
      const uint16_t* from = x.data;
      if (there) from += static_cast<size_t>(first + row) * x.stride + column;
      CopyOrZero(tokens + row * kStageInputs + (chunk ^ (row % 4 * 2)) * 8, from, there);
    }
  }

  // Of row `row` of a stage's tokens, the lane's numbers of a k16 step.
  static __device__ uint2 Numbers(const uint8_t* stage, uint32_t row, uint32_t step) {
    const auto* tokens = reinterpret_cast<const bf16*>(stage + kWeightBytes);
    const uint32_t t = threadIdx.x % 4, chunk = (step * 2 + t / 2) ^ (row % 4 * 2);
    return *reinterpret_cast<const uint2*>(tokens + row * kStageInputs + chunk * 8 + t % 2 * 4);
  }
};

using TileSums = float[Tile::kTokenTiles][Tile::kOutputTiles][4];

// The lane, the block's first output and token, and the warp's first tile of outputs and row of
// tokens in the block.
struct TilePlace {
  const uint32_t lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t output = blockIdx.x * Tile::kOutputs, first = blockIdx.y * Tile::kTokens;
  const uint32_t tile = threadIdx.x / 32 % Tile::kOutputWarps * Tile::kOutputTiles;
  const uint32_t row = threadIdx.x / 32 / Tile::kOutputWarps * Tile::kTokenTiles * 16;
};

// sum += the products of a k16 step of a stage.
__device__ void AddStep(const uint8_t* stage, int step, const TilePlace& at,
                        const uint2 (&weights)[Tile::kOutputTiles], TileSums& sum) {
#pragma unroll
  for (int m = 0; m < Tile::kTokenTiles; ++m) {
    const uint2 a = Tile::Numbers(stage, at.row + m * 16 + at.g, step);
    const uint2 b = Tile::Numbers(stage, at.row + m * 16 + at.g + 8, step);
#pragma unroll
    for (int n = 0; n < Tile::kOutputTiles; ++n) {
      MultiplyAdd(sum[m][n], {a.x, b.x, a.y, b.y}, weights[n].x, weights[n].y);
    }
  }
}

__device__ void StoreSums(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                          const TilePlace& at, const TileSums& sum) {
#pragma unroll
  for (int n = 0; n < Tile::kOutputTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t column = at.output + (at.tile + n) * 8 + at.t * 2 + i % 2;
      if (column >= linear.outputs) continue;
#pragma unroll
      for (int m = 0; m < Tile::kTokenTiles; ++m) {
        const uint32_t token = at.first + at.row + m * 16 + at.g + i / 2 * 8;
        if (token < x.rows) StoreResult(linear, y, token, column, sum[m][n][i]);
      }
    }
  }
}

__global__ void __launch_bounds__(Tile::kThreads)
    TileKernel(DeviceLinear linear, Operand x, FloatMatrix y) {
  extern __shared__ __align__(128) uint8_t tile_shared[];
  constexpr int kRing = Tile::kRing;
  const TilePlace at;
  const uint32_t stages = linear.stride / kStageInputs;
  AllowNextKernel();
  // Weights do not depend on the kernel before this one.
  for (uint32_t i = 0; i < kRing - 1 && i < stages; ++i) {
    Tile::LoadWeights(linear, at.output, i * kStageInputs, tile_shared + i * Tile::kStageBytes);
  }
  AwaitLastKernel();
  for (uint32_t i = 0; i < kRing - 1; ++i) {
    if (i < stages) {
      Tile::LoadTokens(x, at.first, i * kStageInputs, tile_shared + i * Tile::kStageBytes);
    }
    CommitCopies();
  }
  TileSums sum = {};
  for (uint32_t i = 0; i < stages; ++i) {
    WaitForCopies<kRing - 2>();
    __syncthreads();  // the stage is here for all, and the one before it has been read by all
    const uint32_t ahead = i + kRing - 1;
    if (ahead < stages) {
      uint8_t* to = tile_shared + ahead % kRing * Tile::kStageBytes;
      Tile::LoadWeights(linear, at.output, ahead * kStageInputs, to);
      Tile::LoadTokens(x, at.first, ahead * kStageInputs, to);
    }
    CommitCopies();
    const uint8_t* stage = tile_shared + i % kRing * Tile::kStageBytes;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint2 weights[Tile::kOutputTiles];
#pragma unroll
      for (int n = 0; n < Tile::kOutputTiles; ++n) {
        weights[n] = StageWeights(stage, at.tile + n, step);
      }
      AddStep(stage, step, at, weights, sum);
    }
  }
  StoreSums(linear, x, y, at, sum);
}

// --- before and after a product of widened weights -----------------------------------------------

__global__ void WidenKernel(const uint8_t* codes, uint16_t* wide, size_t chunks) {
  AllowNextKernel();
  AwaitLastKernel();  // the product before may read what this one writes
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < chunks;
       i += stride) {
    const uint4 four = reinterpret_cast<const uint4*>(codes)[i];
    const uint2 a = WidenFour(four.x), b = WidenFour(four.y), c = WidenFour(four.z),
                d = WidenFour(four.w);
    auto* to = reinterpret_cast<uint4*>(wide) + 2 * i;
    to[0] = {a.x, a.y, b.x, b.y};
    to[1] = {c.x, c.y, d.x, d.y};
  }
}

__global__ void ScaleKernel(DeviceLinear linear, FloatMatrix y) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= linear.outputs) return;
  const float sum = y.data[static_cast<size_t>(blockIdx.y) * y.stride + column];
  StoreResult(linear, y, blockIdx.y, column, sum);
}

}  // namespace

void LaunchWiden(const DeviceLinear& linear, uint16_t* wide, const LaunchContext& context) {
  const size_t chunks = static_cast<size_t>(linear.outputs) * linear.stride / 16;
  context.Run(WidenKernel, dim3(static_cast<uint32_t>(context.processors) * 8), 256, 0,
              linear.float8, wide, chunks);
}

void LaunchScale(const DeviceLinear& linear, uint32_t rows, FloatMatrix y,
                 const LaunchContext& context) {
  context.Run(ScaleKernel, dim3((linear.outputs + 255) / 256, rows), 256, 0, linear, y);
}

void LaunchFloat8Product(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                         const LaunchContext& context) {
  static const cudaError_t prepared = cudaFuncSetAttribute(
      TileKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(Tile::kShared));
  context.Check(prepared);
  const dim3 grid((linear.outputs + Tile::kOutputs - 1) / Tile::kOutputs,
                  (x.rows + Tile::kTokens - 1) / Tile::kTokens);
  context.Run(TileKernel, grid, Tile::kThreads, Tile::kShared, linear, x, y);
}

}  // namespace rivulet::cuda
