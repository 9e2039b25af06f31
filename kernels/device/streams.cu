// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Residual streams (stream_operations.h). A block has some columns of a token, a thread one column
// of all its streams. Sums over streams ascend, as on the CPU.
//
// Bytes expected: the streams once, or twice where they are written.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/stream_operations.h"
#include "kernels/device/warp_scan.cuh"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kMost = kMostDeviceStreams;
constexpr uint32_t kMostWeights = (2 + kMost) * kMost;

__device__ float ExactSigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// --- weights of a Sinkhorn connection ------------------------------------------------------------
// By a warp: lane j < n has column j of the mixing matrix.

class Mixing {
 public:
  __device__ Mixing(uint32_t n, float eps) : n_(n), eps_(eps) {}

  // Softmax of each row, + eps.
  __device__ void Load(const float* rows) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) {
      if (i >= n_) break;
      const float x = lane < n_ ? rows[i * n_ + lane] : 0.0f;
      float top = __shfl_sync(kAllLanes, x, 0);
      for (uint32_t j = 1; j < n_; ++j) top = fmaxf(top, __shfl_sync(kAllLanes, x, j));
      const float e = expf(x - top);
      m_[i] = e / RowSum(e) + eps_;
    }
  }

  __device__ void DivideRows() {
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) {
      if (i < n_) m_[i] /= RowSum(m_[i]) + eps_;
    }
  }
  __device__ void DivideColumns() {
    float sum = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) {
      if (i < n_) sum += m_[i];
    }
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) m_[i] /= sum + eps_;
  }

  __device__ void Store(float* rows) const {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) {
      if (i < n_ && lane < n_) rows[i * n_ + lane] = m_[i];
    }
  }

 private:
  __device__ float RowSum(float x) const {
    float sum = 0.0f;
    for (uint32_t j = 0; j < n_; ++j) sum += __shfl_sync(kAllLanes, x, j);
    return sum;
  }

  const uint32_t n_;
  const float eps_;
  float m_[kMost] = {};
};

// What the map gave for a token to a, b and M in `weights`, shared memory. By one warp.
__device__ void Weigh(const CollapseStreamsCall& c, const float* given, float* weights) {
  const uint32_t n = c.streams, lane = threadIdx.x % 32;
  for (uint32_t i = lane; i < (2 + n) * n; i += 32) {
    float w = c.scales[min(i / n, 2u)] * given[i] + c.bias[i];
    if (i < 2 * n) w = ExactSigmoid(w);
    weights[i] = i < n ? w + c.eps : i < 2 * n ? 2.0f * w : w;
  }
  __syncwarp();
  Mixing mixing(n, c.eps);
  mixing.Load(weights + 2 * n);
  mixing.DivideColumns();
  for (uint32_t round = 1; round < c.rounds; ++round) {
    mixing.DivideRows();
    mixing.DivideColumns();
  }
  __syncwarp();
  mixing.Store(weights + 2 * n);
}

// --- collapse ------------------------------------------------------------------------------------

__device__ float NormedAt(const Operand& x, uint32_t token, uint32_t column) {
  const auto* at = reinterpret_cast<const bf16*>(x.data) + size_t{token} * x.stride + column;
  const float high = __bfloat162float(*at);
  return x.two_parts ? high + __bfloat162float(at[x.columns]) : high;
}

// Each token's map outputs become its weights, in a kernel of their own: every block of a token
// reads them afterwards.
__global__ void __launch_bounds__(32)
    WeighKernel(const __grid_constant__ CollapseStreamsCall call) {
  __shared__ float weights[kMostWeights];
  AllowNextKernel();
  AwaitLastKernel();
  float* const given = call.weights.data + size_t{blockIdx.x} * call.weights.stride;
  Weigh(call, given, weights);
  __syncwarp();
  for (uint32_t i = threadIdx.x; i < (2 + call.streams) * call.streams; i += 32) {
    given[i] = weights[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    CollapseKernel(const __grid_constant__ CollapseStreamsCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, column = blockIdx.y * kThreads + threadIdx.x;
  const auto hidden = static_cast<uint32_t>(call.y.columns);
  if (column >= hidden) return;
  const float* const x = call.x.data + token * call.x.stride + column;
  const float* const weights = call.weights.data + token * call.weights.stride;
  float sum = 0.0f;
  for (uint32_t s = 0; s < call.streams; ++s) {
    float term;
    if (call.form == StreamForm::kGated) {
      const uint32_t at = s * hidden + column;
      term = ExactSigmoid(weights[at]) * NormedAt(call.normed, token, at);
    } else {
      term = x[s * hidden];
      if (call.form == StreamForm::kSinkhorn) term *= weights[s];
    }
    sum = s == 0 ? term : sum + term;
  }
  if (call.form == StreamForm::kMean) sum /= static_cast<float>(call.streams);
  call.y.data[token * call.y.stride + column] = sum;
}

// --- expand --------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kThreads)
    ExpandKernel(const __grid_constant__ ExpandStreamsCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, column = blockIdx.y * kThreads + threadIdx.x;
  const auto hidden = static_cast<uint32_t>(call.output.columns);
  const uint32_t n = call.streams;
  if (column >= hidden) return;
  float* const x = call.x.data + token * call.x.stride + column;
  const float* const weights = call.weights.data + token * call.weights.stride;
  const float output = call.output.data[token * call.output.stride + column];
  if (call.form == StreamForm::kGated) {
    for (uint32_t s = 0; s < n; ++s) x[s * hidden] += 2.0f * ExactSigmoid(weights[s]) * output;
    return;
  }
  float old[kMost];
#pragma unroll
  for (uint32_t s = 0; s < kMost; ++s) old[s] = s < n ? x[s * hidden] : 0.0f;
  for (uint32_t m = 0; m < n; ++m) {
    float next = weights[2 * n + m] * old[0];
#pragma unroll
    for (uint32_t s = 1; s < kMost; ++s) {
      if (s < n) next += weights[(2 + s) * n + m] * old[s];
    }
    x[m * hidden] = next + weights[n + m] * output;
  }
}

dim3 GridOf(const ConstFloatMatrix& x) {
  return {static_cast<uint32_t>(x.rows),
          (static_cast<uint32_t>(x.columns) + kThreads - 1) / kThreads};
}

}  // namespace

void LaunchCollapseStreams(const CollapseStreamsCall& call, const LaunchContext& context) {
  if (call.streams > kMost) return context.Check(cudaErrorInvalidValue);
  if (call.form == StreamForm::kSinkhorn) {
    context.Run(WeighKernel, dim3(static_cast<uint32_t>(call.y.rows)), 32, 0, call);
  }
  context.Run(CollapseKernel, GridOf(call.y), kThreads, 0, call);
}

void LaunchExpandStreams(const ExpandStreamsCall& call, const LaunchContext& context) {
  if (call.streams > kMost) return context.Check(cudaErrorInvalidValue);
  context.Run(ExpandKernel, GridOf(call.output), kThreads, 0, call);
}

}  // namespace rivulet::cuda
