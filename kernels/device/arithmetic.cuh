// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What kernels compute with: bf16 parts of a number, the warp's matrix instruction (the warpgroup's
// is in warpgroup_product.cuh), and the functions of activations. Compiled with -fmad=false: a
// multiplication and an addition are fused only where the code says so.
#ifndef RIVULET_KERNELS_DEVICE_ARITHMETIC_CUH_
#define RIVULET_KERNELS_DEVICE_ARITHMETIC_CUH_

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/device/device_operations.h"
#include "kernels/device/timeline.cuh"

namespace rivulet::cuda {

using bf16 = __nv_bfloat16;

// Two numbers rounded to bf16, the first in the lower half. It is one instruction; conversions of
// one number each take eight times as long.
__device__ inline uint32_t PackRounded(float first, float second) {
  uint32_t two;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(two) : "f"(second), "f"(first));
  return two;
}

// The numbers of such a pair.
__device__ inline float FirstOf(uint32_t two) { return __uint_as_float(two << 16); }
__device__ inline float SecondOf(uint32_t two) { return __uint_as_float(two & 0xffff0000u); }

// What rounding to bf16 left over, rounded in turn.
__device__ inline float Rest(float x, bf16 rounded) { return x - __bfloat162float(rounded); }

// Two numbers as bf16 high and low parts.
__device__ inline void Split(float first, float second, uint32_t& high, uint32_t& low) {
  high = PackRounded(first, second);
  low = PackRounded(first - FirstOf(high), second - SecondOf(high));
}

// c [16, 8] += a [16, 16] · b [16, 8], bf16 with fp32 accumulators. Lane 4g + t holds
//   a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8), two numbers each
//   b: (2t, g), (2t + 8, g), two numbers each, down
//   c: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// The bits do not depend on the order of the 16 products.
__device__ inline void MultiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices; lane l gives the shared address of row l % 8 of matrix l / 8.
__device__ inline void LoadMatrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// Four transposed 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void LoadTransposed(uint32_t (&r)[4], const bf16* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// 16 bytes from device to shared memory, in the background.
__device__ inline void CopyAsync(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared), "l"(global));
}
__device__ inline void CopyAsync(void* shared, const void* global) {
  CopyAsync(static_cast<uint32_t>(__cvta_generic_to_shared(shared)), global);
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n"); }
template <int kPending>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending));
}

// The launch of the next kernel in the stream may begin; and: wait until the kernels before this
// one have ended and their writes are visible. Both do nothing in a plain launch. Some block of
// each kernel has to wait: then its end means that the kernels before it have ended, too. `row`: of
// the first block that waits.
__device__ inline void AllowNextKernel() {
  Stamp(TimelineEvent::kBegins);
  asm volatile("griddepcontrol.launch_dependents;\n");
}
__device__ inline void AwaitLastKernel(uint32_t row = 0) {
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
  Stamp(TimelineEvent::kAwaited, row);
}

__device__ inline float Softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// Any function. Callers have identity and SiLU inline. Not inline: kernels that run for a few
// microseconds would wait for the instructions of functions that they do not use.
static __device__ __noinline__ float OtherFunction(Activation f, float x) {
  switch (f) {
    case Activation::kIdentity:
      return x;
    case Activation::kSilu:
      return __fdividef(x, 1.0f + __expf(-x));
    case Activation::kSigmoid:
      return __fdividef(1.0f, 1.0f + __expf(-x));
    case Activation::kRelu:
      return fmaxf(x, 0.0f);
    case Activation::kEluPlusOne:
      return x > 0.0f ? x + 1.0f : expf(x);
    case Activation::kExp:
      return expf(x);
    case Activation::kSoftplus:
      return Softplus(x);
    case Activation::kLogSigmoid:
      return -Softplus(-x);
    case Activation::kGeluTanh:
      return 0.5f * x * (1.0f + tanhf(0.7978845608f * fmaf(0.044715f * x * x, x, x)));
    case Activation::kGelu:
      return 0.5f * x * erfcf(-0.7071067812f * x);
    case Activation::kReluSquared:
      return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
    case Activation::kTanh:
      return tanhf(x);
  }
  return x;
}

__device__ inline float Silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

__device__ inline float Function(Activation f, float x) {
  if (f == Activation::kIdentity) return x;
  if (f == Activation::kSilu) return Silu(x);
  return OtherFunction(f, x);
}

// The compiler then knows that the lanes of a warp have the same number: they take the same
// branches, and what is made of it stays in uniform registers, if that is in the same round of a
// loop.
__device__ inline uint32_t SameInWarp(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }

// The sum over the lanes of a warp, in every lane: one fixed tree.
__device__ inline float WarpSum(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// The sum over a block of kThreads, in every thread. `scratch` [kThreads / 32].
template <int kThreads>
__device__ inline float BlockSum(float x, float* scratch) {
  x = WarpSum(x);
  if constexpr (kThreads == 32) return x;
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += scratch[warp];
  return sum;
}

// Numbers of a tail row: bf16, or fp32 where products split their operands.
__device__ inline float Load(const bf16* x) { return __bfloat162float(*x); }
__device__ inline float Load(const float* x) { return *x; }
__device__ inline void Store(bf16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ inline void Store(float* to, float x) { *to = x; }
// What a number becomes when it is stored and loaded.
__device__ inline float AsStored(const bf16*, float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}
__device__ inline float AsStored(const float*, float x) { return x; }

// Four neighbours of such a row, aligned.
__device__ inline float4 LoadFour(const float* x) { return *reinterpret_cast<const float4*>(x); }
__device__ inline float4 LoadFour(const bf16* x) {
  const uint2 bits = *reinterpret_cast<const uint2*>(x);
  return {FirstOf(bits.x), SecondOf(bits.x), FirstOf(bits.y), SecondOf(bits.y)};
}
__device__ inline void StoreFour(float* to, float4 x) { *reinterpret_cast<float4*>(to) = x; }
__device__ inline void StoreFour(bf16* to, float4 x) {
  *reinterpret_cast<uint2*>(to) = {PackRounded(x.x, x.y), PackRounded(x.z, x.w)};
}

// One number of an operand.
__device__ inline void StoreOperand(const Operand& y, uint32_t row, uint32_t column, float x) {
  auto* to = reinterpret_cast<bf16*>(y.data) + static_cast<size_t>(row) * y.stride + column;
  const bf16 high = __float2bfloat16_rn(x);
  *to = high;
  if (y.two_parts) to[y.columns] = __float2bfloat16_rn(Rest(x, high));
}

// Four neighbours; `column` is a multiple of four.
__device__ inline void StoreOperandFour(const Operand& y, uint32_t row, uint32_t column, float4 x) {
  auto* to = y.data + static_cast<size_t>(row) * y.stride + column;
  uint2 high, low;
  Split(x.x, x.y, high.x, low.x);
  Split(x.z, x.w, high.y, low.y);
  *reinterpret_cast<uint2*>(to) = high;
  if (y.two_parts) *reinterpret_cast<uint2*>(to + y.columns) = low;
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_ARITHMETIC_CUH_
