// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The filter over H3's keys: a convolution with a window of up to hundreds of tokens, whose inputs
// before the chunk are a ring in the base. One chain over the lags ascending for each number, in
// both kernels.
//
// Bytes expected of a token: window keys read and one written; the taps once for four tokens of
// decoding.
#include "kernels/device/arithmetic.cuh"
#include "kernels/device/fours.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/running_state_operations.h"

namespace rivulet::cuda {
namespace {

// A thread has this many channels, for decoding of this many tokens, which share the taps.
constexpr uint32_t kFilterChannels = 4;
constexpr int kFilterTokens = 4;
constexpr int kFilterThreads = 128;

// Zeros that are added like other keys, so that both kernels below do the same.
template <typename Row>
__device__ float4 KeysOrZeros(const Row* keys) {
  float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
  if (keys != nullptr) four = LoadFour(keys);
  return four;
}
// Where the keys of a segment are, before it and in it.
template <typename Row>
struct FilterKeys {
  const FilterCall& call;
  const DeviceSegment& segment;
  uint32_t channel;
  bool aligned;
  Row *tail, *ring;     // of the thread's channels
  uint32_t start;       // place of the segment's first token in its chunk
  uint32_t ring_start;  // row of the chunk's first token in the ring

  __device__ FilterKeys(const FilterCall& call, const DeviceSegment& segment, uint32_t channel,
                        bool aligned)
      : call(call), segment(segment), channel(channel), aligned(aligned) {
    tail = reinterpret_cast<Row*>(call.slots.tails + segment.tail * call.slots.tail_stride +
                                  call.tail_offset) +
           channel;
    ring = RingIn(segment.base_in);
    start = static_cast<uint32_t>(segment.position % call.fold_interval);
    ring_start = static_cast<uint32_t>((segment.position - start) % call.ring_rows);
  }

  __device__ Row* RingIn(uint32_t slot) const {
    return reinterpret_cast<Row*>(call.slots.bases + slot * call.slots.base_stride +
                                  call.ring_offset) +
           channel;
  }

  // Of token `index` of the segment, as they are stored and loaded.
  __device__ float4 Own(uint32_t index) const {
    const size_t token = segment.first_token + index;
    float4 keys = LoadFour(call.x.data + token * call.x.stride, channel, call.channels, aligned);
    const auto* as = static_cast<const Row*>(nullptr);
    keys.x = AsStored(as, keys.x), keys.y = AsStored(as, keys.y);
    keys.z = AsStored(as, keys.z), keys.w = AsStored(as, keys.w);
    return keys;
  }

  // Where those of the token `back` before the segment's first one are; null: before position 0.
  __device__ const Row* Before(uint32_t back) const {
    if (back <= start) return tail + static_cast<size_t>(start - back) * call.padded;
    if (back > segment.position) return nullptr;
    return ring + static_cast<size_t>(RingRow(back - start)) * call.padded;
  }

  // The row of the token `back` before the chunk; back <= ring_rows.
  __device__ uint32_t RingRow(uint32_t back) const {
    return ring_start >= back ? ring_start - back : ring_start + call.ring_rows - back;
  }
};

__device__ void AddTap(float4& sum, float4 taps, float4 keys) {
  sum.x = fmaf(taps.x, keys.x, sum.x), sum.y = fmaf(taps.y, keys.y, sum.y);
  sum.z = fmaf(taps.z, keys.z, sum.z), sum.w = fmaf(taps.w, keys.w, sum.w);
}

__device__ void StoreSum(const FilterCall& call, uint32_t token, uint32_t channel, float4 sum) {
  float* y = call.y.data + static_cast<size_t>(token) * call.y.stride + channel;
  const float numbers[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (channel + i < call.channels) y[i] = numbers[i];
  }
}

__device__ float4 Taps(const FilterCall& call, uint32_t lag, uint32_t channel) {
  return LoadFour(call.taps + static_cast<size_t>(lag) * call.padded + channel);
}

// The ring at the border `folded` tokens behind the start of the segment's first chunk.
template <typename Row>
__device__ void KeepRing(const FilterKeys<Row>& keys, uint32_t folded, Row* ring) {
  const FilterCall& call = keys.call;
  for (uint32_t back = call.ring_rows; back > 0; --back) {
    // The row of the token `back` before the border, which is `at` after the segment's first one.
    const int64_t at = static_cast<int64_t>(folded) - keys.start - back;
    const uint32_t row = (keys.ring_start + folded + call.ring_rows - back) % call.ring_rows;
    Row* const to = ring + static_cast<size_t>(row) * call.padded;
    if (at >= 0) {
      StoreFour(to, keys.Own(static_cast<uint32_t>(at)));
      continue;
    }
    const Row* from = keys.Before(static_cast<uint32_t>(-at));
    if (from != nullptr && from != to) StoreFour(to, LoadFour(from));
  }
}

// The same at each border before the last one that has a base of its own.
template <typename Row>
__device__ void KeepRingsWithin(const FilterKeys<Row>& keys, uint32_t last) {
  const DeviceSegment& segment = keys.segment;
  const uint32_t chunk = keys.call.fold_interval;
  for (uint32_t folded = chunk; folded < last; folded += chunk) {
    const uint32_t token = segment.first_token + folded - keys.start - 1;
    const uint32_t slot = keys.call.rows.fold_bases[token];
    if (slot != segment.base_out) KeepRing(keys, folded, keys.RingIn(slot));
  }
}

// The state after segments of any length, for the thread's channels: the ring at the last border,
// then the rows of the tail, which the ring reads before they change.
template <typename Row>
__device__ void KeepKeys(const FilterKeys<Row>& keys) {
  const FilterCall& call = keys.call;
  const uint32_t tokens = keys.segment.tokens, end = keys.start + tokens;
  const uint32_t folded = end / call.fold_interval * call.fold_interval;  // from the chunk's start
  if (folded != 0) {
    if (call.rows.fold_bases != nullptr) KeepRingsWithin(keys, folded);
    KeepRing(keys, folded, keys.RingIn(keys.segment.base_out));
  }
  for (uint32_t place = max(folded, keys.start); place < end; ++place) {
    StoreFour(keys.tail + static_cast<size_t>(place - folded) * call.padded,
              keys.Own(place - keys.start));
  }
}

// One token of each of kFilterTokens segments.
template <typename Row>
__global__ void __launch_bounds__(kFilterThreads)
    FilterDecodeKernel(const __grid_constant__ FilterCall call, bool aligned) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t channel = (blockIdx.x * kFilterThreads + threadIdx.x) * kFilterChannels;
  if (channel >= call.padded) return;
  const uint32_t first = blockIdx.y * kFilterTokens;
  // A segment that is not there reads what the first one reads and stores nothing.
  const auto segment = [&](int s) -> const DeviceSegment& {
    return call.rows.segments[min(first + s, call.rows.segment_count - 1)];
  };
  const FilterKeys<Row> keys[kFilterTokens] = {{call, segment(0), channel, aligned},
                                               {call, segment(1), channel, aligned},
                                               {call, segment(2), channel, aligned},
                                               {call, segment(3), channel, aligned}};
  float4 sums[kFilterTokens];
#pragma unroll
  for (int s = 0; s < kFilterTokens; ++s) {
    sums[s] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (keys[s].segment.tokens != 0) AddTap(sums[s], Taps(call, 0, channel), keys[s].Own(0));
  }
#pragma unroll 4
  for (uint32_t lag = 1; lag < call.window; ++lag) {
    const float4 taps = Taps(call, lag, channel);
#pragma unroll
    for (int s = 0; s < kFilterTokens; ++s) {
      const Row* from = keys[s].segment.tokens == 0 ? nullptr : keys[s].Before(lag);
      AddTap(sums[s], taps, KeysOrZeros(from));
    }
  }
#pragma unroll
  for (int s = 0; s < kFilterTokens; ++s) {
    if (first + s >= call.rows.segment_count || keys[s].segment.tokens == 0) continue;
    StoreSum(call, first + s, channel, sums[s]);
    KeepKeys(keys[s]);
  }
}

// A token of a segment of any length. The state is kept by a kernel of its own, since
// all tokens of a segment read the old one.
template <typename Row>
__global__ void __launch_bounds__(kFilterThreads)
    FilterTokensKernel(const __grid_constant__ FilterCall call, bool aligned) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t channel = (blockIdx.x * kFilterThreads + threadIdx.x) * kFilterChannels;
  const uint32_t token = blockIdx.y;
  if (channel >= call.padded) return;
  const DeviceSegment& segment = call.rows.segments[call.rows.segment_of[token]];
  if (segment.tokens == 0) return;
  const FilterKeys<Row> keys(call, segment, channel, aligned);
  const uint32_t index = token - segment.first_token;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
  for (uint32_t lag = 0; lag < min(call.window, index + 1); ++lag) {
    AddTap(sum, Taps(call, lag, channel), keys.Own(index - lag));
  }
  for (uint32_t lag = index + 1; lag < call.window; ++lag) {
    const Row* from = keys.Before(lag - index);
    AddTap(sum, Taps(call, lag, channel), KeysOrZeros(from));
  }
  StoreSum(call, token, channel, sum);
}

template <typename Row>
__global__ void __launch_bounds__(kFilterThreads)
    KeepKeysKernel(const __grid_constant__ FilterCall call, bool aligned) {
  AllowNextKernel();
  AwaitLastKernel();
  const uint32_t channel = (blockIdx.x * kFilterThreads + threadIdx.x) * kFilterChannels;
  const DeviceSegment& segment = call.rows.segments[blockIdx.y];
  if (channel >= call.padded || segment.tokens == 0) return;
  KeepKeys(FilterKeys<Row>(call, segment, channel, aligned));
}

template <typename Row>
void LaunchFilterRows(const FilterCall& call, const LaunchContext& context) {
  const uint32_t channels = kFilterThreads * kFilterChannels;
  const uint32_t blocks = (call.padded + channels - 1) / channels;
  const uint32_t segments = call.rows.segment_count;
  const bool aligned = Aligned(call.x, call.channels);
  if (call.rows.single) {
    context.Run(FilterDecodeKernel<Row>,
                dim3(blocks, (segments + kFilterTokens - 1) / kFilterTokens), kFilterThreads, 0,
                call, aligned);
    return;
  }
  context.Run(FilterTokensKernel<Row>, dim3(blocks, call.rows.tokens), kFilterThreads, 0, call,
              aligned);
  context.Run(KeepKeysKernel<Row>, dim3(blocks, segments), kFilterThreads, 0, call, aligned);
}

}  // namespace

void LaunchFilter(const FilterCall& call, bool fp32_rows, const LaunchContext& context) {
  if (fp32_rows) return LaunchFilterRows<float>(call, context);
  LaunchFilterRows<bf16>(call, context);
}

}  // namespace rivulet::cuda
