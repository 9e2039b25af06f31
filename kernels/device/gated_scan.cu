// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The real-gated linear recurrent unit (GatedScanCall). A thread owns a channel of a segment and
// walks its tokens, one after the other, with four exponentials for each.
//
// Bytes expected of a token: three inputs and one output; of a segment its state once.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/running_state.cuh"
#include "kernels/device/running_state_operations.h"

namespace rivulet::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ float At(const ConstFloatMatrix& x, size_t token, uint32_t channel) {
  return x.data[token * x.stride + channel];
}

__global__ void __launch_bounds__(kThreads)
    GatedScanKernel(const __grid_constant__ GatedScanCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (segment.tokens == 0 || channel >= call.channels) return;
  const RunningState state = StateOf(call, segment);
  const float rate = call.rate[channel];
  float h = 0.0f;
  if (state.from != nullptr) h = reinterpret_cast<const float*>(state.from)[channel];
  for (uint32_t done = 0; done < state.tokens; ++done) {
    const size_t token = segment.first_token + done;
    const float log_a = rate * Sigmoid(At(call.recurrent_gate, token, channel));
    const float in = Sigmoid(At(call.input_gate, token, channel)) * At(call.x, token, channel);
    const bool first = segment.position + done == 0;
    h = first ? in : fmaf(expf(log_a), h, sqrtf(-expm1f(2.0f * log_a)) * in);
    call.h.data[token * call.h.stride + channel] = h;
    if (std::byte* const to = PlaceWithin(call, segment, state, done + 1)) {
      reinterpret_cast<float*>(to)[channel] = h;
    }
  }
}

}  // namespace

void LaunchGatedScan(const GatedScanCall& call, const LaunchContext& context) {
  const uint32_t blocks = (call.channels + kThreads - 1) / kThreads;
  context.Run(GatedScanKernel, dim3(blocks, call.rows.segment_count), kThreads, 0, call);
}

}  // namespace rivulet::cuda
