// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The ceilings that kernels are measured against: what reading, copying and updating device memory
// in place reach here and now.
#include <cstddef>
#include <cstdint>

#include "kernels/device/launch.cuh"
#include "kernels/device/median_rate.cuh"

namespace rivulet::cuda {
namespace {

constexpr size_t kBytes = size_t{2} << 30;
constexpr uint32_t kThreads = 512;

// Sums that nothing else makes the loads necessary for.
__global__ void ReadKernel(const float4* x, size_t count, float* sink) {
  float sum = 0.0f;
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i + 7 * stride < count;
       i += 8 * stride) {
    float4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = x[i + j * stride];
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[j].x + v[j].y + v[j].z + v[j].w;
  }
  if (sum == 12345.678f) *sink = sum;
}

__global__ void UpdateKernel(float4* x) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  float4 v = x[i];
  v.x = fmaf(v.x, 0.999f, 1e-3f), v.y = fmaf(v.y, 0.999f, 1e-3f);
  v.z = fmaf(v.z, 0.999f, 1e-3f), v.w = fmaf(v.w, 0.999f, 1e-3f);
  x[i] = v;
}

}  // namespace

DeviceLimits MeasureLimits(const LaunchContext& context) {
  float4* memory = nullptr;
  if (cudaMalloc(&memory, 2 * kBytes) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  cudaMemsetAsync(memory, 0, 2 * kBytes, context.stream);
  const size_t count = kBytes / sizeof(float4);
  DeviceLimits limits;
  limits.read = MedianRate(context.stream, kBytes, [&] {
    ReadKernel<<<context.processors * 8, kThreads / 2, 0, context.stream>>>(
        memory, count, reinterpret_cast<float*>(memory));
  });
  limits.in_place = MedianRate(context.stream, 2.0 * kBytes, [&] {
    UpdateKernel<<<static_cast<uint32_t>(count / kThreads), kThreads, 0, context.stream>>>(memory);
  });
  limits.copy = MedianRate(context.stream, 2.0 * kBytes, [&] {
    cudaMemcpyAsync(memory + count, memory, kBytes, cudaMemcpyDeviceToDevice, context.stream);
  });
  cudaStreamSynchronize(context.stream);
  cudaFree(memory);
  return limits;
}

}  // namespace rivulet::cuda
