// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for any number of tokens, where no other kernel takes the product; and products by
// blocks of columns. A warp owns 8·kOutputTiles outputs and walks all of K; nothing is split over
// K, so each output is one chain. Weights come through a ring of shared memory that only this warp
// uses; the tokens' numbers come through L1, where the warps of a block share them.
//
// Bytes expected: outputs · stride · 2 of weights (twice that in two parts), once for each 16, 32
// or 64 tokens.
#include "kernels/device/products.cuh"

namespace rivulet::cuda {
namespace {

// What the blocks of a product by blocks differ in; a plain product is one block.
struct BlockSteps {
  uint32_t x = 0, y = 0;  // columns
};

// Adjacent rows of an operand, from `first` on; of each, `count` numbers from `column` on.
struct AdjacentRows {
  const Operand& x;
  uint32_t first;
  uint32_t column, count;

  __device__ uint32_t columns() const { return count; }
  __device__ uint32_t part_offset() const { return x.columns; }
  __device__ uint32_t Token(uint32_t slot) const { return first + slot * 8 + threadIdx.x % 32 / 4; }
  __device__ bool Has(uint32_t slot) const { return Token(slot) < x.rows; }
  __device__ const uint16_t* Row(uint32_t slot) const {
    return x.data + static_cast<size_t>(Token(slot)) * x.stride + column;
  }
};

// The map of one block of columns. linear.outputs is that of a block already.
__device__ DeviceLinear OfBlock(DeviceLinear linear, uint32_t block) {
  const size_t first = size_t{block} * linear.outputs;
  linear.high += first * linear.stride;
  if (linear.low != nullptr) linear.low += first * linear.stride;
  if (linear.bias != nullptr) linear.bias += first;
  return linear;
}

template <int kTokenTiles, int kOutputTiles, int kParts>
__global__ void __launch_bounds__(kWarps * 32)
    ProductKernel(DeviceLinear whole, Operand x, FloatMatrix y, BlockSteps steps) {
  const DeviceLinear linear = OfBlock(whole, blockIdx.z);
  y.data += blockIdx.z * steps.y;
  extern __shared__ __align__(128) bf16 shared[];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t output = (blockIdx.x * kWarps + warp) * kOutputTiles * 8;
  const uint32_t first = blockIdx.y * kTokenTiles * 16;
  AllowNextKernel();
  if (output >= linear.outputs) return;
  bf16* ring =
      shared + warp * kRingStages<kOutputTiles, kParts> * kStageNumbers<kOutputTiles, kParts>;
  // Weights do not depend on the kernel before this one.
  StartRing<kOutputTiles, kParts>(linear, output, ring);
  AwaitLastKernel();
  float sum[kTokenTiles][kOutputTiles][4] = {};
  const AdjacentRows rows{x, first, blockIdx.z * steps.x, steps.x == 0 ? x.columns : steps.x};
  RunChains<kTokenTiles, kOutputTiles, kParts>(linear, rows, output, ring, sum);
  const uint32_t g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < kOutputTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t column = output + n * 8 + t * 2 + i % 2;
      if (column >= linear.outputs) continue;
      const float bias = linear.bias == nullptr ? 0.0f : linear.bias[column];
#pragma unroll
      for (int m = 0; m < kTokenTiles; ++m) {
        const uint32_t token = first + m * 16 + g + i / 2 * 8;
        if (token < x.rows) y.data[token * y.stride + column] = sum[m][n][i] + bias;
      }
    }
  }
}

template <int kTokenTiles, int kOutputTiles, int kParts>
void Launch(const DeviceLinear& linear, const Operand& x, FloatMatrix y, uint32_t blocks,
            const BlockSteps& steps, const LaunchContext& context) {
  constexpr size_t kShared = kRingBytes<kOutputTiles, kParts>;
  const auto kernel = ProductKernel<kTokenTiles, kOutputTiles, kParts>;
  static const cudaError_t prepared = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  context.Check(prepared);
  const uint32_t outputs = kWarps * kOutputTiles * 8, tokens = kTokenTiles * 16;
  const dim3 grid((linear.outputs + outputs - 1) / outputs, (x.rows + tokens - 1) / tokens, blocks);
  context.Run(kernel, grid, kWarps * 32, kShared, linear, x, y, steps);
}

template <int kParts>
void LaunchForRows(const DeviceLinear& linear, const Operand& x, FloatMatrix y, uint32_t blocks,
                   const BlockSteps& steps, const LaunchContext& context) {
  if (x.rows <= 16) return Launch<1, 1, kParts>(linear, x, y, blocks, steps, context);
  if (x.rows <= 32) return Launch<2, 2, kParts>(linear, x, y, blocks, steps, context);
  Launch<4, 2, kParts>(linear, x, y, blocks, steps, context);
}

void LaunchBlocks(const DeviceLinear& linear, const Operand& x, FloatMatrix y, uint32_t blocks,
                  const BlockSteps& steps, const LaunchContext& context) {
  if (x.rows == 0) return;
  if (linear.low != nullptr) return LaunchForRows<2>(linear, x, y, blocks, steps, context);
  LaunchForRows<1>(linear, x, y, blocks, steps, context);
}

__global__ void AddBiasKernel(DeviceLinear linear, FloatMatrix y) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column < linear.outputs) y.data[blockIdx.x * y.stride + column] += linear.bias[column];
}

}  // namespace

void LaunchAddBias(const DeviceLinear& linear, uint32_t rows, FloatMatrix y,
                   const LaunchContext& context) {
  context.Run(AddBiasKernel, dim3(rows, (linear.outputs + 255) / 256), 256, 0, linear, y);
}

void LaunchChain(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                 const LaunchContext& context) {
  LaunchBlocks(linear, x, y, 1, {}, context);
}

void LaunchBlockProduct(const BlockProductCall& call, const LaunchContext& context) {
  DeviceLinear linear = call.linear;
  linear.outputs /= call.blocks;
  LaunchBlocks(linear, call.x, call.y, call.blocks, {call.x_step, call.y_step}, context);
}

}  // namespace rivulet::cuda
