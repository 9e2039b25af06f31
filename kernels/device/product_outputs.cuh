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
// the norm and the residual stream are read before the chains, and tens_of_tokens.cu,
// hundred_tokens.cu and fp8_tokens.cu rehearse what they do with outputs before their tokens are
// there (rehearsal.cuh) and have warps that do nothing but compute factors, as has held_tokens.cu.
// In few_tokens.cu the warps that multiply compute them while the tokens come.
#ifndef RIVULET_KERNELS_DEVICE_PRODUCT_OUTPUTS_CUH_
#define RIVULET_KERNELS_DEVICE_PRODUCT_OUTPUTS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {

struct ProductOutputs {
  FloatMatrix y;                 // [T, outputs]
  const float* bias = nullptr;   // null: none, as with a factor and with a norm
  const float* scale = nullptr;  // of weights in fp8; null with those in bf16
  RowFactor factor = {};         // of squares
  LateNorm norm = {};            // with a norm y is the residual stream, to which outputs are added
  uint32_t rows = 0, outputs = 0;
  bool pairs = false;  // no bias, an even number of outputs, and y takes two numbers at once

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
constexpr uint32_t kMostBroughtFactors = kFactorWarps * 32;  // rows

// `writers`: threads that await them (AwaitFactors).
template <uint32_t kWarps = kFactorWarps, uint32_t kAtOnce = kFactorsAtOnce>
__device__ inline void BringFactors(const ProductOutputs& out, uint32_t warp, uint32_t writers,
                                    float* factors) {
  if (out.factor.values != nullptr) {
    AwaitLastKernel();
    for (uint32_t token = warp * 32 + threadIdx.x % 32; token < out.rows; token += kWarps * 32) {
      factors[token] = ReadLate(out.factor.values + token);
    }
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

// Stores under a condition. Of an `if` the compiler makes a branch, and moves what leads to the
// address into it: eight stores then take 1.4 microseconds, one after the other.
__device__ inline void StoreIf(bool stores, float* to, float x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.f32 [%1], %2;\n}\n" ::"r"(
                   static_cast<uint32_t>(stores)),
               "l"(to), "f"(x)
               : "memory");
}
__device__ inline void StoreIf(bool stores, float* to, float2 x) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.v2.f32 [%1], {%2, %3};\n}\n" ::"r"(
          static_cast<uint32_t>(stores)),
      "l"(to), "f"(x.x), "f"(x.y)
      : "memory");
}
__device__ inline void StoreIf(bool stores, uint16_t* to, uint32_t two) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %0, 0;\n@p st.global.u32 [%1], %2;\n}\n" ::"r"(
                   static_cast<uint32_t>(stores)),
               "l"(to), "r"(two)
               : "memory");
}

// One of a lane's rows, with what all of its outputs share.
struct OutputRow {
  uint32_t token;
  float factor;
  bool stores;  // the row is there, and this is not a rehearsal
};
__device__ inline OutputRow RowOf(const ProductOutputs& out, const float* factors, uint32_t token,
                                  bool real) {
  return {token, FactorAt(out, factors, token), real && token < out.rows};
}

// Outputs of a row: kTiles pairs of columns `first`, first + 8, and so on. sum(n): of one of them.
// Each of these functions is for all lanes of a warp.

// Adds them to the residual stream. before(n) and weight(n): as they were read.
template <uint32_t kTiles, typename Sum, typename Before, typename Weight>
__device__ inline void AddOutputs(const ProductOutputs& out, const OutputRow& row, uint32_t first,
                                  const Sum& sum, const Before& before, const Weight& weight) {
  float2 x[kTiles];
  float squares[kTiles];
  uint32_t packed[kTiles];
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
    const float2 two = sum(n), old = before(n), w = weight(n);
    x[n] = {fmaf(row.factor, two.x, old.x), fmaf(row.factor, two.y, old.y)};
    squares[n] = fmaf(x[n].y, x[n].y, x[n].x * x[n].x);
    packed[n] = PackRounded(w.x * x[n].x, w.y * x[n].y);
  }
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) squares[n] += __shfl_xor_sync(0xffffffffu, squares[n], 1);
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) squares[n] += __shfl_xor_sync(0xffffffffu, squares[n], 2);
  const LateNorm& norm = out.norm;
  float* const to = out.y.data + size_t{row.token} * out.y.stride + first;
  auto* const operand = norm.y.data + size_t{row.token} * norm.y.stride + first;
  float* const eights = norm.squares + size_t{row.token} * norm.stride + first / LateNorm::kSquares;
  const bool sums = threadIdx.x % 4 == 0;
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
    const bool stores = row.stores && first + n * 8 < out.outputs;
    StoreIf(stores, to + n * 8, x[n]);
    StoreIf(stores, operand + n * 8, packed[n]);
    StoreIf(stores && sums, eights + n * 8 / LateNorm::kSquares, squares[n]);
  }
}

// Of a map without bias, pairs at once.
template <uint32_t kTiles, typename Sum>
__device__ inline void StorePairs(const ProductOutputs& out, const OutputRow& row, uint32_t first,
                                  const Sum& sum) {
  float* const to = out.y.data + size_t{row.token} * out.y.stride + first;
#pragma unroll
  for (uint32_t n = 0; n < kTiles; ++n) {
    const float2 two = sum(n), y = {row.factor * two.x, row.factor * two.y};
    StoreIf(row.stores && first + n * 8 < out.outputs, to + n * 8, y);
  }
}

// Of any map. Biases of a few pairs are read before the first of these is stored.
template <uint32_t kTiles, typename Sum>
__device__ inline void StoreOutputs(const ProductOutputs& out, const OutputRow& row, uint32_t first,
                                    const Sum& sum) {
  constexpr uint32_t kAtOnce = 4;
  float* const to = out.y.data + size_t{row.token} * out.y.stride;
  const auto bias = [&](uint32_t at) {
    return out.bias != nullptr && at < out.outputs ? out.bias[at] : 0.0f;
  };
  const auto finished = [&](float x, float b) {
    return out.bias != nullptr ? x + b : row.factor * x;
  };
#pragma unroll
  for (uint32_t begin = 0; begin < kTiles; begin += kAtOnce) {
    float2 biases[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce && begin + i < kTiles; ++i) {
      const uint32_t at = first + (begin + i) * 8;
      biases[i] = {bias(at), bias(at + 1)};
    }
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce && begin + i < kTiles; ++i) {
      const uint32_t at = first + (begin + i) * 8;
      const float2 two = sum(begin + i);
      StoreIf(row.stores && at < out.outputs, to + at, finished(two.x, biases[i].x));
      StoreIf(row.stores && at + 1 < out.outputs, to + at + 1, finished(two.y, biases[i].y));
    }
  }
}

// All outputs of a warp, of kRows rows token(i). sum(i, n); before(i, n) and weight(n) are asked
// for only where outputs are added. kAdds: they may be.
template <uint32_t kRows, uint32_t kTiles, bool kAdds = true, typename Token, typename Sum,
          typename Before, typename Weight>
__device__ inline void WriteOutputs(const ProductOutputs& out, const float* factors, bool real,
                                    uint32_t first, const Token& token, const Sum& sum,
                                    const Before& before, const Weight& weight) {
  const auto for_each_row = [&](const auto& write) {
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      write(RowOf(out, factors, token(i), real), i, [&](uint32_t n) { return sum(i, n); });
    }
  };
  if (kAdds && out.adds()) {
    for_each_row([&](const OutputRow& row, uint32_t i, const auto& sums) {
      AddOutputs<kTiles>(
          out, row, first, sums, [&](uint32_t n) { return before(i, n); }, weight);
    });
  } else if (out.pairs) {
    for_each_row([&](const OutputRow& row, uint32_t, const auto& sums) {
      StorePairs<kTiles>(out, row, first, sums);
    });
  } else {
    for_each_row([&](const OutputRow& row, uint32_t, const auto& sums) {
      StoreOutputs<kTiles>(out, row, first, sums);
    });
  }
}

// --- launches ------------------------------------------------------------------------------------

// Products with weights in bf16, or in fp8 where that is said. False: not of a shape for which the
// kernel is faster, and nothing is launched. `ahead`: what to bring into L2 meanwhile. With a norm
// `outputs` is as LateNorm::Serves says.
//
// few_tokens.cu: up to 4 tokens, or 1 with weights in fp8.
bool LaunchFewTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                     const WeightsAhead& ahead, const LaunchContext& context);
// held_tokens.cu: the same for maps with few outputs, of one row only with many inputs; to be asked
// before LaunchFewTokens.
bool LaunchHeldTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                      const WeightsAhead& ahead, const LaunchContext& context);
// fp8_tokens.cu: up to 128 tokens, weights in fp8.
bool LaunchFloat8Tokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                        const WeightsAhead& ahead, const LaunchContext& context);
// tens_of_tokens.cu: up to 64 tokens.
bool LaunchTensOfTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                        const WeightsAhead& ahead, const LaunchContext& context);
// hundred_tokens.cu: 17 to 32 tokens and maps with few outputs; to be asked before
// LaunchTensOfTokens.
bool LaunchFewOutputs(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                      const WeightsAhead& ahead, const LaunchContext& context);
// hundred_tokens.cu: 33 to 128 tokens, where it is faster than the library; to be asked after
// LaunchTensOfTokens, which declines where this is faster.
bool LaunchHundredTokens(const DeviceLinear& linear, const Operand& x, const ProductOutputs& out,
                         const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_PRODUCT_OUTPUTS_CUH_
