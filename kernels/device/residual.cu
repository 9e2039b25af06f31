// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The residual sum and norm with everything that few models have (AddNormCall), operands that are
// scaled, and capped logits. Rows are those of decode steps and prompts alike; nothing here was
// tuned.
//
// Bytes expected: each matrix once.
#include <algorithm>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/fours.cuh"
#include "kernels/device/held_row.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

// A row over the threads of a block (held_row.cuh), zeros behind its numbers.
template <bool kAligned>
struct HeldRow {
  uint32_t columns;
  float4 fours[kHeldFours] = {};

  // visit(column, four) of this thread's fours that have numbers before `end`.
  template <typename Visit>
  __device__ void ForEach(uint32_t end, Visit&& visit) {
#pragma unroll
    for (uint32_t j = 0; j < kHeldFours; ++j) {
      const uint32_t i = (threadIdx.x + j * blockDim.x) * 4;
      if (i < end) visit(i, fours[j]);
    }
  }

  __device__ void Load(const float* numbers) {
    ForEach(columns, [&](uint32_t i, float4& x) { x = ReadFour<kAligned>(numbers, i, columns); });
  }
  __device__ void Store(float* numbers) {
    ForEach(columns, [&](uint32_t i, float4& x) { WriteFour<kAligned>(numbers, i, columns, x); });
  }

  __device__ void Scale(float factor) {
    ForEach(columns, [&](uint32_t, float4& number) {
      for (int k = 0; k < 4; ++k) At(number, k) *= factor;
    });
  }
  // numbers = keep · x + add · numbers
  __device__ void AddTo(const float* x, float keep, float add) {
    ForEach(columns, [&](uint32_t i, float4& number) {
      const float4 kept = ReadFour<kAligned>(x, i, columns);
      for (int k = 0; k < 4; ++k) At(number, k) = fmaf(add, At(number, k), keep * At(kept, k));
    });
  }

  // In place.
  __device__ void Norm(const float* weight, const float* bias, float eps, float (&mean_scratch)[32],
                       float (&square_scratch)[32]) {
    const RowNorm norm =
        NormOfRow(fours, columns, bias != nullptr, eps, mean_scratch, square_scratch);
    ForEach(columns, [&](uint32_t i, float4& x) {
      const float4 weights = ReadFour<kAligned>(weight, i, columns);
      for (int k = 0; k < 4; ++k) {
        At(x, k) = (At(x, k) - norm.mean) * norm.scale * At(weights, k);
      }
      if (bias == nullptr) return;
      const float4 biases = ReadFour<kAligned>(bias, i, columns);
      for (int k = 0; k < 4; ++k) At(x, k) += At(biases, k);
    });
  }
};

template <bool kAligned>
__global__ void __launch_bounds__(kMostThreads)
    ResidualKernel(const __grid_constant__ AddNormCall call) {
  __shared__ Scratch scratch;
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x;
  float* const x = call.x.data + token * call.x.stride;
  HeldRow<kAligned> row = {static_cast<uint32_t>(call.x.columns)};
  if (call.update.data != nullptr) {
    row.Load(call.update.data + token * call.update.stride);
    const float squares = SquaresOfThread(call.update_factor, token);
    row.Scale(FactorOf(call.update_factor, squares, scratch[4]));
    if (call.update_weight != nullptr) {
      row.Norm(call.update_weight, call.update_bias, call.update_eps, scratch[0], scratch[1]);
    }
    row.AddTo(x, call.keep, call.add);
  } else {
    row.Load(x);
    row.Scale(call.keep);
  }
  if (call.update.data != nullptr || call.keep != 1) row.Store(x);
  if (call.y.data == nullptr && !call.keeps_normed) return;
  if (call.weight != nullptr) row.Norm(call.weight, call.bias, call.eps, scratch[2], scratch[3]);
  if (call.keeps_normed) row.Store(x);
  if (call.y.data == nullptr) return;
  row.ForEach(call.y.columns,
              [&](uint32_t i, float4& y) { StoreOperandFour(call.y, token, i, y); });
}

__global__ void ScaleOperandKernel(ScaleOperandCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= call.x.columns) return;
  const auto* from = reinterpret_cast<const bf16*>(call.x.data) + size_t{token} * call.x.stride;
  float x = __bfloat162float(from[column]);
  if (call.x.two_parts) x += __bfloat162float(from[call.x.columns + column]);
  StoreOperand(call.y, token, column, call.factor * x);
}

__global__ void CopyColumnsKernel(ConstFloatMatrix x, FloatMatrix y) {
  AllowNextKernel();
  AwaitLastKernel();
  const size_t column = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= x.columns) return;
  y.data[blockIdx.x * y.stride + column] = x.data[blockIdx.x * x.stride + column];
}

__global__ void CapKernel(FloatMatrix logits, float cap) {
  AllowNextKernel();
  AwaitLastKernel();
  const size_t column = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (column >= logits.columns) return;
  float& x = logits.data[blockIdx.x * logits.stride + column];
  x = cap * tanhf(x / cap);
}

}  // namespace

void LaunchResidual(const AddNormCall& call, const LaunchContext& context) {
  const auto columns = static_cast<uint32_t>(std::max(call.x.columns, size_t{call.y.columns}));
  if (columns > kMostNormedWidth) context.Check(cudaErrorInvalidValue);
  const auto begins_at_16 = [](const float* numbers) {
    return reinterpret_cast<uintptr_t>(numbers) % 16 == 0;
  };
  const bool aligned = Aligned(call.x, call.x.columns) &&
                       (call.update.data == nullptr || Aligned(call.update, call.x.columns)) &&
                       begins_at_16(call.weight) && begins_at_16(call.bias) &&
                       begins_at_16(call.update_weight) && begins_at_16(call.update_bias);
  context.Run(aligned ? ResidualKernel<true> : ResidualKernel<false>,
              dim3(static_cast<uint32_t>(call.x.rows)), ThreadsFor(columns), 0, call);
}

void LaunchScaleOperand(const ScaleOperandCall& call, const LaunchContext& context) {
  context.Run(ScaleOperandKernel, dim3(call.x.rows, (call.x.columns + 255) / 256), 256, 0, call);
}

void LaunchCopyColumns(ConstFloatMatrix x, FloatMatrix y, const LaunchContext& context) {
  const auto blocks = static_cast<uint32_t>((x.columns + 255) / 256);
  context.Run(CopyColumnsKernel, dim3(static_cast<uint32_t>(x.rows), blocks), 256, 0, x, y);
}

void LaunchCapLogits(FloatMatrix logits, float cap, const LaunchContext& context) {
  const auto blocks = static_cast<uint32_t>((logits.columns + 255) / 256);
  context.Run(CapKernel, dim3(static_cast<uint32_t>(logits.rows), blocks), 256, 0, logits, cap);
}

}  // namespace rivulet::cuda
