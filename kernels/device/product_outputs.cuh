// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of products for few rows do with their outputs: add a bias, or multiply by the
// factor of the row (RowFactor), or add them to the residual stream and leave the operand of the
// next map (AddProductCall). The last saves a kernel and the wait for it. The order of every sum is
// that of late_norm.cu, so the bits are the same.
//
// A warp has its outputs as the matrix instruction leaves them: lane 4g + t has columns 2t and
// 2t + 1 of eight neighbours, of row g.
//
// With few rows neither instructions nor numbers are in a cache when a product ends. So weights of
// the norm and the residual stream are read before the chains, and tens_of_tokens.cu and
// hundred_tokens.cu rehearse what they do with outputs before their tokens are there
// (rehearsal.cuh) and have warps that do nothing but compute factors, as has held_tokens.cu. In
// few_tokens.cu the warps that multiply compute them while the tokens come.
#ifndef RIVULET_KERNELS_DEVICE_PRODUCT_OUTPUTS_CUH_
#define RIVULET_KERNELS_DEVICE_PRODUCT_OUTPUTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {

struct ProductOutputs {
  FloatMatrix y;                // [T, outputs]
  const float* bias = nullptr;  // null: none, as with a factor and with a norm
  RowFactor factor = {};        // of squares
  LateNorm norm = {};           // with a norm y is the residual stream, to which outputs are added
  uint32_t rows = 0, outputs = 0;
  bool pairs = false;  // two numbers of y may be stored at once

  __host__ __device__ bool adds() const { return norm.y.data != nullptr; }
  __host__ __device__ bool scales() const { return factor.given(); }
};

// --- factors -------------------------------------------------------------------------------------

// A lane's part of the sum of a row's squares.
__device__ inline float SquaresOfLane(const RowFactor& factor, uint32_t token) {
  constexpr uint32_t kAtOnce = 3;
  const auto* squares =
      reinterpret_cast<const float4*>(factor.squares + size_t{token} * factor.stride);
  const uint32_t fours = factor.count / 4;
  float4 x[kAtOnce];
#pragma unroll
  for (uint32_t j = 0; j < kAtOnce; ++j) {
    const uint32_t i = threadIdx.x % 32 + j * 32;
    x[j] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (i < fours) x[j] = ReadLate(squares + i);
  }
  float sum = 0.0f;
#pragma unroll
  for (uint32_t j = 0; j < kAtOnce; ++j) sum += (x[j].x + x[j].y) + (x[j].z + x[j].w);
#pragma unroll 1
  for (uint32_t i = threadIdx.x % 32 + kAtOnce * 32; i < fours; i += 32) {
    const float4 more = ReadLate(squares + i);
    sum += (more.x + more.y) + (more.z + more.w);
  }
  return sum;
}
// The factor, from the parts of a warp's lanes, in each of them.
__device__ inline float FactorOfLanes(float squares, uint32_t width, float eps) {
  return rsqrtf(__fdividef(WarpSum(squares), static_cast<float>(width)) + eps);
}

// Factors of tokens first, first + step, ..., kAtOnce of them, of those before `rows`. By a warp.
template <uint32_t kAtOnce>
__device__ inline void ComputeFactors(const RowFactor& factor, uint32_t first, uint32_t step,
                                      uint32_t last, uint32_t rows, float* factors) {
  float squares[kAtOnce];
#pragma unroll
  for (uint32_t i = 0; i < kAtOnce; ++i) {
    squares[i] = SquaresOfLane(factor, min(first + i * step, last));
  }
#pragma unroll
  for (uint32_t i = 0; i < kAtOnce; ++i) {
    const float x = FactorOfLanes(squares[i], factor.width, factor.eps);
    const uint32_t token = first + i * step;
    if (threadIdx.x % 32 == 0 && token < rows) factors[token] = x;
  }
}

// Factors of all rows to shared memory, by so many warps of a block that do nothing else, each of
// which has some rows at once: with fewer or more of the latter steps were slower.
constexpr uint32_t kFactorWarps = 4, kFactorsAtOnce = 4;

// `writers`: threads that await them (AwaitFactors).
template <uint32_t kWarps = kFactorWarps, uint32_t kAtOnce = kFactorsAtOnce>
__device__ inline void BringFactors(const ProductOutputs& out, uint32_t warp, uint32_t writers,
                                    float* factors) {
  if (out.factor.values != nullptr) {
    AwaitLastKernel();
    const uint32_t token = warp * 32 + threadIdx.x % 32;
    if (token < out.rows) factors[token] = ReadLate(out.factor.values + token);
  } else {
#pragma unroll 1
    for (uint32_t pass = 0; pass < 2; ++pass) {  // the first is a rehearsal
      uint32_t rows = pass == 0 ? 0 : out.rows, first = warp;
      if (pass == 1) AwaitLastKernel();
      asm volatile("" : "+r"(rows));  // one copy of the work for both passes
#pragma unroll 1
      do {
        ComputeFactors<kAtOnce>(out.factor, first, kWarps, out.rows - 1, rows, factors);
        first += kAtOnce * kWarps;
      } while (first < rows);
    }
  }
  __threadfence_block();
  asm volatile("bar.arrive 3, %0;\n" ::"r"(writers + kWarps * 32) : "memory");
}
constexpr uint32_t kMostBroughtFactors = kFactorWarps * 32;  // rows

template <uint32_t kWarps = kFactorWarps>
__device__ inline void AwaitFactors(uint32_t writers) {
  asm volatile("bar.sync 3, %0;\n" ::"r"(writers + kWarps * 32) : "memory");
}

// The factor of a token; there may be fewer.
__device__ inline float FactorAt(const ProductOutputs& out, const float* factors, uint32_t token) {
  return out.scales() ? factors[min(token, out.rows - 1)] : 1.0f;
}

// --- outputs -------------------------------------------------------------------------------------

// Two neighbouring numbers of a row of the residual stream, or of another if there is none.
__device__ inline float2 ReadResidual(const ProductOutputs& out, uint32_t token, uint32_t column) {
  const uint32_t row = min(token, out.rows - 1), at = min(column, out.outputs - 2);
  return ReadLate(reinterpret_cast<const float2*>(out.y.data + size_t{row} * out.y.stride + at));
}
// The norm's weights there, which do not depend on the kernel before.
__device__ inline float2 ReadNormWeights(const ProductOutputs& out, uint32_t column) {
  return *reinterpret_cast<const float2*>(out.norm.weight + min(column, out.outputs - 2));
}

// By all lanes of a warp, with `x` and `weight` as they were read. `real`: false: nothing is
// stored.
__device__ inline void AddOutputs(const ProductOutputs& out, uint32_t token, uint32_t column,
                                  float factor, float2 sum, float2 x, float2 weight, bool real) {
  x = {fmaf(factor, sum.x, x.x), fmaf(factor, sum.y, x.y)};
  float squares = fmaf(x.y, x.y, x.x * x.x);
  squares += __shfl_xor_sync(0xffffffffu, squares, 1);
  squares += __shfl_xor_sync(0xffffffffu, squares, 2);
  const uint32_t packed = PackRounded(weight.x * x.x, weight.y * x.y);
  if (!real || token >= out.rows || column >= out.outputs) return;
  const LateNorm& norm = out.norm;
  *reinterpret_cast<float2*>(out.y.data + size_t{token} * out.y.stride + column) = x;
  *reinterpret_cast<uint32_t*>(norm.y.data + size_t{token} * norm.y.stride + column) = packed;
  if (threadIdx.x % 4 != 0) return;
  norm.squares[size_t{token} * norm.stride + column / LateNorm::kSquares] = squares;
}

__device__ inline void StoreOutputs(const ProductOutputs& out, uint32_t token, uint32_t column,
                                    float factor, float2 sum, bool real) {
  if (token >= out.rows || column >= out.outputs) return;
  const bool both = column + 1 < out.outputs;
  if (out.bias != nullptr) {
    sum.x += out.bias[column];
    if (both) sum.y += out.bias[column + 1];
  } else {
    sum = {factor * sum.x, factor * sum.y};
  }
  if (!real) return;
  float* const y = out.y.data + size_t{token} * out.y.stride + column;
  if (both && out.pairs) {
    *reinterpret_cast<float2*>(y) = sum;
    return;
  }
  y[0] = sum.x;
  if (both) y[1] = sum.y;
}

// AddOutputs or StoreOutputs; `x` and `weight` are of the former.
__device__ inline void WriteOutputs(const ProductOutputs& out, uint32_t token, uint32_t column,
                                    float factor, float2 sum, float2 x, float2 weight, bool real) {
  if (out.adds()) return AddOutputs(out, token, column, factor, sum, x, weight, real);
  StoreOutputs(out, token, column, factor, sum, real);
}

// --- launches ------------------------------------------------------------------------------------

// Products with weights in bf16, and the first also in fp8. False: not of a shape for which the
// kernel is faster, and nothing is launched. `ahead`: what to bring into L2 meanwhile. With a norm
// `outputs` is as LateNorm::Serves says.
//
// few_tokens.cu: up to 4 tokens, or 8 with weights in fp8.
bool LaunchFewTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                     const WeightsAhead& ahead, const LaunchContext& context);
// held_tokens.cu: the same for maps with few outputs, of one row only with many inputs; to be asked
// before LaunchFewTokens.
bool LaunchHeldTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                      const WeightsAhead& ahead, const LaunchContext& context);
// tens_of_tokens.cu: up to 64 tokens.
bool LaunchTensOfTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                        const WeightsAhead& ahead, const LaunchContext& context);
// hundred_tokens.cu: 17 to 32 tokens and maps with few outputs; to be asked before
// LaunchTensOfTokens.
bool LaunchFewOutputs(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                      const WeightsAhead& ahead, const LaunchContext& context);
// hundred_tokens.cu: 33 to 128 tokens, where it is faster than the library; to be asked after
// LaunchTensOfTokens, which is faster where it does not decline.
bool LaunchHundredTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                         const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PRODUCT_OUTPUTS_CUH_
