// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// y = x Wᵀ + b for few tokens: as fast as the weights can be read. A warp owns 8·kOutputTiles
// outputs and walks all of K; nothing is split over K, so each output is one chain. Weights come
// through a ring of shared memory that only this warp uses; the tokens' numbers come through L1,
// where the warps of a block share them.
//
// The 16 numbers of a k16 step are permuted (lane t takes numbers 4t to 4t + 3), in weights and
// tokens alike, so that each lane reads 8 bytes at a time.
//
// Bytes expected: outputs · stride · 2 of weights (twice that in two parts), once for each 16, 32
// or 64 tokens.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kStageInputs = 64;  // k of one stage of the ring: 128 bytes of a row

template <int kOutputTiles>
constexpr int kStages = kOutputTiles == 1 ? 16 : 8;

// A stage's numbers of the tokens as the instruction wants them.
template <int kTokenTiles, int kParts>
struct TokenNumbers {
  uint32_t a[kStageInputs / 16][kParts][kTokenTiles][4];

  // Of tokens from `first` on and inputs from `k` on; zeros outside.
  __device__ void Load(const Operand& x, uint32_t first, uint32_t k) {
    const uint32_t lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (uint32_t step = 0; step < kStageInputs / 16; ++step) {
      const uint32_t column = k + step * 16 + lane % 4 * 4;
      const uint32_t rows = column < x.columns ? x.rows : 0;
#pragma unroll
      for (uint32_t i = 0; i < kParts * kTokenTiles * 2; ++i) {
        const uint32_t half = i % 2, tile = i / 2 % kTokenTiles, part = i / 2 / kTokenTiles;
        const uint32_t token = first + tile * 16 + half * 8 + g;
        uint2 numbers = {0, 0};
        if (token < rows) {
          numbers = *reinterpret_cast<const uint2*>(x.data + static_cast<size_t>(token) * x.stride +
                                                    part * x.columns + column);
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

__device__ uint2 StageWeights(const bf16* stage, uint32_t tile, uint32_t step) {
  const uint32_t lane = threadIdx.x % 32, row = tile * 8 + lane / 4, t = lane % 4;
  const uint32_t chunk = (step * 2 + t / 2) ^ (row % 4 * 2);
  return *reinterpret_cast<const uint2*>(stage + row * kStageInputs + chunk * 8 + t % 2 * 4);
}

// The numbers of up to 16 tokens in shared memory, all of K: rows of `stride` numbers, a multiple
// of 64 plus 8 so that rows begin in different banks.
__device__ void HoldTokens(const Operand& x, uint32_t inputs, uint32_t stride, bf16* to) {
  const uint32_t steps = inputs / 8;
  for (uint32_t i = threadIdx.x; i < x.rows * steps; i += blockDim.x) {
    const uint32_t token = i / steps, column = i % steps * 8;
    uint4 numbers = {0, 0, 0, 0};
    if (column < x.columns) {
      numbers =
          *reinterpret_cast<const uint4*>(x.data + static_cast<size_t>(token) * x.stride + column);
    }
    *reinterpret_cast<uint4*>(to + token * stride + column) = numbers;
  }
}

// y for at most 16 tokens in bf16, where latency counts: the tokens are held in shared memory, so
// that a stage waits for its weights alone.
template <int kFewWarps>
__global__ void __launch_bounds__(kFewWarps * 32)
    FewTokensKernel(DeviceLinear linear, Operand x, FloatMatrix y) {
  extern __shared__ __align__(128) bf16 shared[];
  constexpr int kRing = kStages<1>, kStageSize = 8 * kStageInputs;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t output = (blockIdx.x * kFewWarps + warp) * 8;
  const uint32_t stages = output < linear.outputs ? linear.stride / kStageInputs : 0;
  const uint32_t stride = linear.stride + 8;
  bf16* ring = shared + warp * kRing * kStageSize;
  bf16* tokens = shared + kFewWarps * kRing * kStageSize;
  AllowNextKernel();
  // Weights do not depend on the kernel before this one.
  for (uint32_t i = 0; i < kRing - 1; ++i) {
    if (i < stages) {
      LoadRing<1>(linear, output, i * kStageInputs, ring + i * kStageSize, false);
    }
    CommitCopies();
  }
  AwaitLastKernel();
  HoldTokens(x, linear.stride, stride, tokens);
  __syncthreads();
  float sum[4] = {};
  const bool upper = g < x.rows, lower = g + 8 < x.rows;
  for (uint32_t i = 0; i < stages; ++i) {
    WaitForCopies<kRing - 2>();
    __syncwarp();
    if (i + kRing - 1 < stages) {
      LoadRing<1>(linear, output, (i + kRing - 1) * kStageInputs,
                  ring + (i + kRing - 1) % kRing * kStageSize, false);
    }
    CommitCopies();
    const bf16* stage = ring + i % kRing * kStageSize;
    uint2 weights[kStageInputs / 16], a[kStageInputs / 16], b[kStageInputs / 16];
#pragma unroll
    for (int step = 0; step < kStageInputs / 16; ++step) {
      weights[step] = StageWeights(stage, 0, step);
      const bf16* row = tokens + g * stride + i * kStageInputs + step * 16 + t * 4;
      a[step] = b[step] = {0, 0};
      if (upper) a[step] = *reinterpret_cast<const uint2*>(row);
      if (lower) b[step] = *reinterpret_cast<const uint2*>(row + 8 * stride);
    }
#pragma unroll
    for (int step = 0; step < kStageInputs / 16; ++step) {
      MultiplyAdd(sum, {a[step].x, b[step].x, a[step].y, b[step].y}, weights[step].x,
                  weights[step].y);
    }
  }
  if (stages == 0) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t column = output + t * 2 + i % 2, token = g + i / 2 * 8;
    if (column >= linear.outputs || token >= x.rows) continue;
    const float bias = linear.bias == nullptr ? 0.0f : linear.bias[column];
    y.data[token * y.stride + column] = sum[i] + bias;
  }
}

// Most bytes of shared memory of a block.
constexpr size_t kMostShared = 200 << 10;

template <int kFewWarps>
bool LaunchFew(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
               const LaunchContext& context) {
  const size_t shared = sizeof(bf16) * (size_t{kFewWarps} * kStages<1> * 8 * kStageInputs +
                                        size_t{x.rows} * (linear.stride + 8));
  if (shared > kMostShared) return false;
  static const cudaError_t prepared = cudaFuncSetAttribute(
      FewTokensKernel<kFewWarps>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  context.Check(prepared);
  const uint32_t outputs = kFewWarps * 8;
  context.Run(FewTokensKernel<kFewWarps>, dim3((linear.outputs + outputs - 1) / outputs),
              kFewWarps * 32, shared, linear, x, y);
  return true;
}

// Blocks of fewer warps where there are not enough outputs for all processors.
bool LaunchFewTokens(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                     const LaunchContext& context) {
  if (x.rows > 16 || linear.low != nullptr) return false;
  const bool few = linear.outputs < static_cast<uint32_t>(context.processors) * 32;
  return few ? LaunchFew<1>(linear, x, y, context) : LaunchFew<4>(linear, x, y, context);
}

template <int kTokenTiles, int kOutputTiles, int kParts>
__global__ void __launch_bounds__(kWarps * 32)
    ProductKernel(DeviceLinear linear, Operand x, FloatMatrix y) {
  extern __shared__ __align__(128) bf16 shared[];
  constexpr int kStageSize = kParts * kOutputTiles * 8 * kStageInputs;
  constexpr int kRing = kStages<kOutputTiles> / kParts;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t output = (blockIdx.x * kWarps + warp) * kOutputTiles * 8;
  const uint32_t first = blockIdx.y * kTokenTiles * 16;
  AllowNextKernel();
  if (output >= linear.outputs) return;
  bf16* ring = shared + warp * kRing * kStageSize;
  const uint32_t stages = linear.stride / kStageInputs;
  // Weights do not depend on the kernel before this one.
  for (uint32_t i = 0; i < kRing - 1; ++i) {
    if (i < stages) {
      LoadRing<kOutputTiles>(linear, output, i * kStageInputs, ring + i * kStageSize, kParts == 2);
    }
    CommitCopies();
  }
  AwaitLastKernel();
  float sum[kTokenTiles][kOutputTiles][4] = {};
  // One stage ahead where registers allow it, since the first warp that reads a line waits for L2.
  constexpr bool kAhead = kTokenTiles * kParts <= 2;
  TokenNumbers<kTokenTiles, kParts> tokens, next;
  if constexpr (kAhead) next.Load(x, first, 0);
  for (uint32_t i = 0; i < stages; ++i) {
    if constexpr (kAhead) {
      tokens = next;
      next.Load(x, first, (i + 1) * kStageInputs);
    } else {
      tokens.Load(x, first, i * kStageInputs);
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
void Launch(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
            const LaunchContext& context) {
  constexpr int kRing = kStages<kOutputTiles> / kParts;
  constexpr size_t kShared =
      size_t{kWarps} * kRing * kParts * kOutputTiles * 8 * kStageInputs * sizeof(bf16);
  const auto kernel = ProductKernel<kTokenTiles, kOutputTiles, kParts>;
  static const cudaError_t prepared = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared));
  context.Check(prepared);
  const uint32_t outputs = kWarps * kOutputTiles * 8, tokens = kTokenTiles * 16;
  const dim3 grid((linear.outputs + outputs - 1) / outputs, (x.rows + tokens - 1) / tokens);
  context.Run(kernel, grid, kWarps * 32, kShared, linear, x, y);
}

template <int kParts>
void LaunchForRows(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                   const LaunchContext& context) {
  if (x.rows <= 16) return Launch<1, 1, kParts>(linear, x, y, context);
  if (x.rows <= 32) return Launch<2, 2, kParts>(linear, x, y, context);
  Launch<4, 2, kParts>(linear, x, y, context);
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
  if (x.rows == 0 || LaunchFewTokens(linear, x, y, context)) return;
  if (linear.low != nullptr) return LaunchForRows<2>(linear, x, y, context);
  LaunchForRows<1>(linear, x, y, context);
}

}  // namespace rivulet::cuda
