// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The residual sum and norm with everything that few models have (AddNormCall), operands that are
// scaled, and capped logits. Rows are those of decode steps and prompts alike; nothing here was
// tuned.
//
// Bytes expected: each matrix once.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

constexpr int kThreads = 512;
// The most numbers of a row that a thread holds.
constexpr uint32_t kHeld = kMostNormedWidth / kThreads;

// A row of `columns` numbers over the threads of a block: thread t has t, t + kThreads, ...
struct HeldRow {
  float numbers[kHeld];

  template <typename At>
  __device__ void Load(uint32_t columns, At&& at) {
#pragma unroll
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t i = threadIdx.x + j * kThreads;
      numbers[j] = i < columns ? at(i, numbers[j]) : 0.0f;
    }
  }

  // visit(column, number) of this thread's numbers.
  template <typename Visit>
  __device__ void ForEach(uint32_t columns, Visit&& visit) {
#pragma unroll
    for (uint32_t j = 0; j < kHeld; ++j) {
      const uint32_t i = threadIdx.x + j * kThreads;
      if (i < columns) visit(i, numbers[j]);
    }
  }

  // In place. Sums are in another order than those of AddNormRow (rows.cu): which of the two norms
  // a stream depends on the model alone.
  __device__ void Norm(uint32_t columns, const float* weight, const float* bias, float eps,
                       float* scratch) {
    const auto count = static_cast<float>(columns);
    float sum = 0.0f, mean = 0.0f, squares = 0.0f;
    ForEach(columns, [&](uint32_t, float x) { sum += x; });
    if (bias != nullptr) mean = BlockSum<kThreads>(sum, scratch) / count;
    ForEach(columns, [&](uint32_t, float x) { squares = fmaf(x - mean, x - mean, squares); });
    const float scale = 1.0f / sqrtf(BlockSum<kThreads>(squares, scratch) / count + eps);
    ForEach(columns, [&](uint32_t i, float& x) {
      x = (x - mean) * scale * weight[i];
      if (bias != nullptr) x += bias[i];
    });
  }
};

__global__ void __launch_bounds__(kThreads)
    ResidualKernel(const __grid_constant__ AddNormCall call) {
  __shared__ float scratch[kThreads / 32];
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, columns = static_cast<uint32_t>(call.x.columns);
  float* const x = call.x.data + token * call.x.stride;
  HeldRow row;
  if (call.update.data != nullptr) {
    const float* const update = call.update.data + token * call.update.stride;
    row.Load(columns, [&](uint32_t i, float) { return update[i]; });
    if (call.update_weight != nullptr) {
      row.Norm(columns, call.update_weight, call.update_bias, call.update_eps, scratch);
    }
    row.Load(columns,
             [&](uint32_t i, float added) { return fmaf(call.add, added, call.keep * x[i]); });
    row.ForEach(columns, [&](uint32_t i, float sum) { x[i] = sum; });
  } else {
    row.Load(columns, [&](uint32_t i, float) { return call.keep * x[i]; });
    if (call.keep != 1) row.ForEach(columns, [&](uint32_t i, float kept) { x[i] = kept; });
  }
  if (call.y.data == nullptr && !call.keeps_normed) return;
  if (call.weight != nullptr) row.Norm(columns, call.weight, call.bias, call.eps, scratch);
  if (call.keeps_normed) row.ForEach(columns, [&](uint32_t i, float normed) { x[i] = normed; });
  if (call.y.data == nullptr) return;
  row.ForEach(call.y.columns, [&](uint32_t i, float y) { StoreOperand(call.y, token, i, y); });
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
  if (call.x.columns > kMostNormedWidth) context.Check(cudaErrorInvalidValue);
  context.Run(ResidualKernel, dim3(static_cast<uint32_t>(call.x.rows)), kThreads, 0, call);
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
