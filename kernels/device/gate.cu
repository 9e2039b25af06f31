// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gate of an MLP with multipliers (gate_operations.h). A thread has four neighbours.
//
// Bytes expected: gate and x once, y once.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/fours.cuh"
#include "kernels/device/gate_operations.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/rehearsal.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kThreads = 128;

// Zeros from the last column on.
template <bool kAligned>
__device__ float4 FourOf(const ConstFloatMatrix& x, uint32_t row, uint32_t column) {
  const auto columns = static_cast<uint32_t>(x.columns);
  const float* from = x.data + row * x.stride + column;
  if (column >= columns) return {0.0f, 0.0f, 0.0f, 0.0f};
  if constexpr (kAligned) return ReadLate(reinterpret_cast<const float4*>(from));
  const auto number = [&](uint32_t i) { return column + i < columns ? ReadLate(from + i) : 0.0f; };
  return {number(0), number(1), number(2), number(3)};
}

__device__ float Gated(const GateCall& call, float gate, float x) {
  gate *= call.gate_multiplier;
  if (call.limit != 0) {
    gate = gate > call.limit ? call.limit : gate;
    x = x > call.limit ? call.limit : x < -call.limit ? -call.limit : x;
  }
  return Function(call.f, gate) * x * call.multiplier;
}

__host__ __device__ uint32_t ColumnsOf(const GateCall& call) {
  return call.y.data != nullptr ? call.y.columns : static_cast<uint32_t>(call.numbers.columns);
}

__device__ void StoreNumbers(const FloatMatrix& y, uint32_t column, float4 x) {
  float* const to = y.data + blockIdx.y * y.stride + column;
  const float numbers[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (column + i < y.columns) to[i] = numbers[i];
  }
}

template <bool kAligned>
__device__ void GateFour(const GateCall& call, bool real) {
  const uint32_t column = (blockIdx.x * kThreads + threadIdx.x) * 4;
  if (column >= ColumnsOf(call)) return;
  const float4 gate = FourOf<kAligned>(call.gate, blockIdx.y, column);
  const float4 x = FourOf<kAligned>(call.x, blockIdx.y, column);
  const float4 y = {Gated(call, gate.x, x.x), Gated(call, gate.y, x.y), Gated(call, gate.z, x.z),
                    Gated(call, gate.w, x.w)};
  KeepInRegisters(y);
  if (!real) return;
  call.y.data != nullptr ? StoreOperandFour(call.y, blockIdx.y, column, y)
                         : StoreNumbers(call.numbers, column, y);
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    GateKernel(const __grid_constant__ GateCall call, uint32_t rehearsed) {
  AllowNextKernel();
  RunRehearsed(rehearsed, [&](bool real) { GateFour<kAligned>(call, real); });
}

}  // namespace

void LaunchGate(const GateCall& call, const LaunchContext& context) {
  const bool aligned = Aligned(call.gate, call.gate.columns) && Aligned(call.x, call.x.columns);
  const dim3 grid((ColumnsOf(call) + kThreads * 4 - 1) / (kThreads * 4),
                  static_cast<uint32_t>(call.x.rows));
  context.Run(aligned ? GateKernel<true> : GateKernel<false>, grid, kThreads, 0, call,
              context.RehearsedBlocks(grid.x * grid.y));
}

}  // namespace rivulet::cuda
