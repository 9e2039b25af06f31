// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RWKV's token shift (TokenShiftCall) and mixtures of a token's own (OwnMixturesCall). A thread has
// a channel of a token and writes all mixtures of it.
//
// Bytes expected: x twice, each mixture once; of a token's own also their weights.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/rwkv_operations.h"

namespace rivulet::cuda {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kThreads = 128;

__device__ float InputAt(const Operand& x, uint32_t token, uint32_t channel) {
  const auto* at = reinterpret_cast<const bf16*>(x.data) + size_t{token} * x.stride + channel;
  const float high = __bfloat162float(*at);
  return x.two_parts ? high + __bfloat162float(at[x.columns]) : high;
}

// A segment's state.
template <typename Row>
struct ShiftState {
  Row *tail, *after;  // [C, padded]; [padded] of base_out
  const Row* before;  // null: zeros
  uint32_t start;     // place of the segment's first token

  __device__ ShiftState(const TokenShiftCall& call, const DeviceSegment& segment) {
    tail = reinterpret_cast<Row*>(call.slots.tails + segment.tail * call.slots.tail_stride +
                                  call.tail_offset);
    before = segment.position == 0 ? nullptr : Base(call, segment.base_in);
    after = Base(call, segment.base_out);
    start = static_cast<uint32_t>(segment.position % kChunk);
  }
  static __device__ Row* Base(const TokenShiftCall& call, uint32_t slot) {
    return reinterpret_cast<Row*>(call.slots.bases + slot * call.slots.base_stride +
                                  call.before_offset);
  }
  // The input before the segment.
  __device__ float Last(uint32_t padded, uint32_t channel) const {
    if (start != 0) return Load(tail + (start - 1) * padded + channel);
    return before == nullptr ? 0.0f : Load(before + channel);
  }
};

template <typename Row>
__global__ void ShiftKernel(const __grid_constant__ TokenShiftCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, channel = blockIdx.y * kThreads + threadIdx.x;
  if (channel >= call.y[0].columns) return;
  const DeviceSegment& segment = call.rows.segments[SegmentOf(call.rows, token)];
  if (segment.tokens == 0) return;
  const bool real = channel < call.channels;
  float own = 0.0f, before = 0.0f;
  if (real) {
    const ShiftState<Row> state(call, segment);
    own = InputAt(call.x, token, channel);
    before = token == segment.first_token ? state.Last(call.padded, channel)
                                          : InputAt(call.x, token - 1, channel);
    if (call.rows.single) {
      Store(state.tail + state.start * call.padded + channel, own);
      if (state.start + 1 == kChunk) Store(state.after + channel, own);
    }
  }
  const float difference = before - own;
  if (real && call.difference.data != nullptr) {
    call.difference.data[size_t{token} * call.difference.stride + channel] = difference;
  }
  for (uint32_t m = 0; m < call.mixtures; ++m) {
    const float mixed = real ? own + difference * call.mix[m][channel] : 0.0f;
    StoreOperand(call.y[m], token, channel, mixed);
  }
}

// The state after segments of any length, when all of their tokens have been mixed.
template <typename Row>
__global__ void KeepLastKernel(const __grid_constant__ TokenShiftCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  const uint32_t channel = blockIdx.x * kThreads + threadIdx.x;
  if (segment.tokens == 0 || channel >= call.channels) return;
  const ShiftState<Row> state(call, segment);
  const uint32_t end = state.start + segment.tokens, border = end / kChunk * kChunk;
  const auto token_at = [&](uint32_t place) {  // counted from the first token's chunk
    return segment.first_token + place - state.start;
  };
  const auto at = [&](uint32_t place) { return InputAt(call.x, token_at(place), channel); };
  if (border != 0) Store(state.after + channel, at(border - 1));
  for (uint32_t kept = kChunk; kept < border && call.rows.fold_bases != nullptr; kept += kChunk) {
    const uint32_t slot = BaseAfter(call.rows, segment, token_at(kept - 1));
    if (slot != segment.base_out) {
      Store(ShiftState<Row>::Base(call, slot) + channel, at(kept - 1));
    }
  }
  for (uint32_t place = max(border, state.start); place < end; ++place) {
    Store(state.tail + (place - border) * call.padded + channel, at(place));
  }
}

__global__ void OwnMixturesKernel(const __grid_constant__ OwnMixturesCall call) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t token = blockIdx.x, channel = blockIdx.y * kThreads + threadIdx.x;
  if (channel >= call.y[0].columns) return;
  const bool real = channel < call.channels;
  const float own = real ? InputAt(call.x, token, channel) : 0.0f;
  const float difference =
      real ? call.difference.data[size_t{token} * call.difference.stride + channel] : 0.0f;
  const float* const weights = call.weights.data + size_t{token} * call.weights.stride;
  for (uint32_t m = 0; m < call.mixtures; ++m) {
    const uint32_t column = m * call.channels + channel;
    const float mixed = real ? own + difference * (weights[column] + call.bias[column]) : 0.0f;
    StoreOperand(call.y[m], token, channel, mixed);
  }
}

uint32_t BlocksOf(uint32_t columns) { return (columns + kThreads - 1) / kThreads; }

template <typename Row>
void Launch(const TokenShiftCall& call, const LaunchContext& context) {
  context.Run(ShiftKernel<Row>, dim3(call.rows.tokens, BlocksOf(call.y[0].columns)), kThreads, 0,
              call);
  if (call.rows.single) return;
  context.Run(KeepLastKernel<Row>, dim3(BlocksOf(call.channels), call.rows.segment_count), kThreads,
              0, call);
}

}  // namespace

void LaunchTokenShift(const TokenShiftCall& call, bool fp32_rows, const LaunchContext& context) {
  fp32_rows ? Launch<float>(call, context) : Launch<bf16>(call, context);
}

void LaunchOwnMixtures(const OwnMixturesCall& call, const LaunchContext& context) {
  context.Run(OwnMixturesKernel, dim3(call.x.rows, BlocksOf(call.y[0].columns)), kThreads, 0, call);
}

}  // namespace rivulet::cuda
