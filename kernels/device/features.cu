// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Feature maps of linear attention: a warp has one head of one token.
//
// Bytes expected: x and the trained maps of it once, the features once.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/features_operations.h"
#include "kernels/device/launch.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kWarps = 8;

__global__ void __launch_bounds__(kWarps * 32)
    SplitHeadsKernel(const __grid_constant__ SplitHeadsCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= call.x.rows * call.heads) return;
  const float* x = call.x.data + row / call.heads * call.x.stride + row % call.heads * call.width;
  for (uint32_t i = lane; i < call.y.columns; i += 32) {
    StoreOperand(call.y, row, i, i < call.width ? call.scale * x[i] : 0.0f);
  }
}

// Number i of the 2d numbers [relu(x), relu(-x)].
__device__ float Halves(const float* x, uint32_t width, uint32_t i) {
  return i < width ? fmaxf(x[i], 0.0f) : fmaxf(-x[i - width], 0.0f);
}

// Feature i, but for what all features of the head share.
__device__ float FeatureAt(const FeaturesCall& call, const float* m, uint32_t i) {
  const uint32_t d = call.width;
  switch (call.kind) {
    case FeatureMapKind::kElementwiseProduct:
      return m[i] * m[d + i];
    case FeatureMapKind::kHedgehog:
      return i < d ? 2.0f * m[i] : -2.0f * m[i - d];
    case FeatureMapKind::kDpfp: {
      const uint32_t n = 2 * d, roll = i / n + 1, at = i % n;
      return Halves(m, d, at) * Halves(m, d, (at + n * roll - roll) % n);
    }
    case FeatureMapKind::kElu:
      return Function(Activation::kEluPlusOne, m[i]);
    case FeatureMapKind::kT2r:
    case FeatureMapKind::kRelu:
      return fmaxf(m[i], 0.0f);
    case FeatureMapKind::kRandomRelu:
      return fmaxf(m[i], 0.0f) + call.offset;
    case FeatureMapKind::kRandomExp:
    case FeatureMapKind::kIdentity:
      return m[i];
  }
  return m[i];
}

constexpr uint32_t kHeld = kMostFeatures / 32;

// The features of one head, feature lane + 32 j in values[j].
struct HeadFeatures {
  float values[kHeld];
  uint32_t count, lane;

  template <typename Visit>
  __device__ void ForEach(Visit&& visit) {
#pragma unroll
    for (uint32_t j = 0; j < kHeld; ++j) {
      if (lane + 32 * j < count) visit(values[j], lane + 32 * j);
    }
  }

  __device__ float Sum() {
    float sum = 0.0f;
    ForEach([&](float& x, uint32_t) { sum += x; });
    return WarpSum(sum);
  }

  __device__ void Softmax() {
    float most = -INFINITY;
    ForEach([&](float& x, uint32_t) { most = fmaxf(most, x); });
    for (int step = 16; step > 0; step /= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    }
    ForEach([&](float& x, uint32_t) { x = expf(x - most); });
    const float sum = Sum();
    ForEach([&](float& x, uint32_t) { x /= sum; });
  }

  // values = R^{-1/2} e^{value - |scale · x|²/2}
  __device__ void RandomExp(const float* x, uint32_t width, float scale) {
    float squares = 0.0f;
    for (uint32_t i = lane; i < width; i += 32) {
      const float scaled = scale * x[i];
      squares = fmaf(scaled, scaled, squares);
    }
    const float half = 0.5f * WarpSum(squares);
    const float ratio = 1.0f / sqrtf(static_cast<float>(count));
    ForEach([&](float& value, uint32_t) { value = expf(value - half) * ratio; });
  }
};

__global__ void __launch_bounds__(kWarps * 32)
    FeaturesKernel(const __grid_constant__ FeaturesCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= call.x.rows * call.heads) return;
  const uint32_t token = row / call.heads, head = row % call.heads;
  const float* x = call.x.data + token * call.x.stride + head * call.width;
  const float* mapped =
      call.mapped.data == nullptr ? x : call.mapped.data + row * call.mapped.stride;
  HeadFeatures features;
  features.count = call.features;
  features.lane = threadIdx.x % 32;
  features.ForEach([&](float& value, uint32_t i) { value = FeatureAt(call, mapped, i); });
  if (call.kind == FeatureMapKind::kHedgehog) features.Softmax();
  if (call.kind == FeatureMapKind::kRandomExp) {
    features.RandomExp(x, call.width, call.input_scale);
  }
  float scale = call.scale;
  if (call.divide_by_sum) scale = scale / (features.Sum() + 1e-4f);
  float* y = call.y.data + token * call.y.stride + head * call.padded;
  features.ForEach([&](float& value, uint32_t i) { y[i] = value * scale; });
  for (uint32_t i = call.features + features.lane; i < call.padded; i += 32) y[i] = 0.0f;
}

dim3 GridFor(size_t rows) { return dim3((static_cast<uint32_t>(rows) + kWarps - 1) / kWarps); }

}  // namespace

void LaunchSplitHeads(const SplitHeadsCall& call, const LaunchContext& context) {
  context.Run(SplitHeadsKernel, GridFor(call.x.rows * call.heads), kWarps * 32, 0, call);
}

void LaunchFeatures(const FeaturesCall& call, const LaunchContext& context) {
  if (call.features > kMostFeatures) context.Check(cudaErrorInvalidValue);
  context.Run(FeaturesKernel, GridFor(call.x.rows * call.heads), kWarps * 32, 0, call);
}

}  // namespace rivulet::cuda
