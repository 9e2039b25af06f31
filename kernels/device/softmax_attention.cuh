// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What the kernels of softmax attention share: how they load, the partials of spans, and how a
// step's work is cut up.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENTION_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENTION_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/arithmetic.cuh"
#include "kernels/device/bulk_copy.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/softmax_operations.h"

namespace rivulet::cuda::softmax {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kWarps = 4;  // of a block of the grid
constexpr uint32_t kThreads = kWarps * 32;

constexpr float kNothing = -__builtin_huge_valf();

// The slot of a page that the segment reads or writes.
__device__ inline uint32_t SlotOf(const AttendCall& c, const DeviceSegmentPages& pages,
                                  uint64_t page) {
  return c.pages.slots[pages.first + static_cast<uint32_t>(page - pages.first_page)];
}

// --- loads ---------------------------------------------------------------------------------------

__device__ inline void LoadMatrices(uint32_t (&r)[4], const bf16* row) {
  cuda::LoadMatrices(r, SharedAddress(row));
}

// Eight neighbours to shared memory: in the background, with a policy of L2 or without one,
// or as two parts.
template <bool kHasPolicy>
__device__ inline void CopyEight(bf16* to, size_t /*plane*/, const bf16* from, uint64_t policy) {
  kHasPolicy ? CopyAsync(SharedAddress(to), from, policy) : CopyAsync(to, from);
}
template <bool kHasPolicy>
__device__ inline void CopyEight(bf16* to, size_t plane, const float* from, uint64_t /*policy*/) {
  const float4 a = *reinterpret_cast<const float4*>(from);
  const float4 b = *reinterpret_cast<const float4*>(from + 4);
  uint4 high, low;
  Split(a.x, a.y, high.x, low.x);
  Split(a.z, a.w, high.y, low.y);
  Split(b.x, b.y, high.z, low.z);
  Split(b.z, b.w, high.w, low.w);
  *reinterpret_cast<uint4*>(to) = high;
  *reinterpret_cast<uint4*>(to + plane) = low;
}

// --- partials ------------------------------------------------------------------------------------

// How the results so far and those of the next span are weighed.
struct JoinWeights {
  float largest, first, second;

  __device__ JoinWeights(float m, float next) {
    largest = fmaxf(m, next);
    first = m == kNothing ? 0.0f : expf(m - largest);
    second = next == kNothing ? 0.0f : expf(next - largest);
  }
};

__device__ inline float Joined(float x, float next, float first, float second) {
  const float later = next * second;
  return fmaf(x, first, later);
}

// Where the partials of a segment's query head are: its place among those that are kept.
__device__ inline size_t PartialIndex(const AttendCall& c, uint32_t place, uint32_t head,
                                      uint32_t span) {
  return (size_t{place} * c.heads + head) * kMostSpans + span;
}
__device__ inline float* PartialOutput(const AttendCall& c, size_t index) {
  return c.partials + index * c.padded;
}
__device__ inline float2* PartialLength(const AttendCall& c, uint32_t places, size_t index) {
  float* lengths = c.partials + size_t{places} * c.heads * kMostSpans * c.padded;
  return reinterpret_cast<float2*>(lengths) + index;
}

// The segments of one launch.
struct SegmentRange {
  uint32_t first, count;
  uint32_t spans = 1;  // adjacent spans of a decode row that a block reads one after the other
  uint32_t* counter = nullptr;  // LaunchContext::counter
  uint32_t slots = 0;           // Attender::SharedBytes
};

// --- work ----------------------------------------------------------------------------------------

// Which query rows a block takes: `heads` heads of each of `tokens` tokens.
struct Tiling {
  uint32_t heads;       // of a tile; the last one of a group may have fewer
  uint32_t head_tiles;  // of a group
  uint32_t tokens;      // of a tile, which begins at a multiple of it: a power of two

  __host__ __device__ static Tiling Of(uint32_t group, uint32_t rows, bool single) {
    const uint32_t heads = group < rows ? group : rows;
    uint32_t tokens = 1;
    while (!single && 2 * tokens * heads <= rows) tokens *= 2;
    return {heads, (group + heads - 1) / heads, tokens};
  }
};

// The spans of a decode row.
__device__ inline uint32_t SpansOf(const AttendCall& c, const DeviceSegment& segment) {
  const uint32_t bits = SpanBits(segment.position, c.window);
  const uint64_t first = FirstSeen(segment.position, c.window, c.unseen);
  return static_cast<uint32_t>((segment.position >> bits) - (first >> bits)) + 1;
}

// The groups of spans of a decode row, or the tiles of a longer segment.
template <bool kWalk>
__device__ uint32_t UnitsOf(const AttendCall& c, SegmentRange range, const DeviceSegment& segment,
                            uint32_t tokens) {
  if (segment.tokens == 0 || (segment.tokens == 1) == kWalk) return 0;
  if (!kWalk) return (SpansOf(c, segment) + range.spans - 1) / range.spans;
  const uint64_t first = segment.position, last = segment.position + segment.tokens - 1;
  return static_cast<uint32_t>(last / tokens - first / tokens) + 1;
}

// units[i + 1] = the units of the range's segments 0 .. i. By one warp; a lane has eight.
template <bool kWalk>
__device__ void CountUnits(const AttendCall& c, SegmentRange range, uint32_t tokens,
                           uint32_t* units) {
  constexpr uint32_t kPerLane = kSpanSegments / 32;
  const uint32_t lane = threadIdx.x;
  uint32_t count[kPerLane], sum = 0;
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    const uint32_t i = lane * kPerLane + j;
    count[j] =
        i < range.count ? UnitsOf<kWalk>(c, range, c.rows.segments[range.first + i], tokens) : 0;
    sum += count[j];
  }
  uint32_t before = sum;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xffffffffu, before, step);
    if (lane >= step) before += other;
  }
  before -= sum;
  if (lane == 0) units[0] = 0;
#pragma unroll
  for (uint32_t j = 0; j < kPerLane; ++j) {
    before += count[j];
    units[lane * kPerLane + j + 1] = before;
  }
}

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_ATTENTION_CUH_
