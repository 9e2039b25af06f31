// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The partials of a row's spans of softmax attention (softmax_operations.h): where they are, and
// how they are joined.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_PARTIALS_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_PARTIALS_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/softmax_attention.cuh"

namespace rivulet::cuda::softmax {

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
__device__ inline float2* PartialLength(const AttendCall& c, size_t index) {
  const size_t places = size_t{KeptSegments(c.rows.segment_count)} * c.heads;
  return reinterpret_cast<float2*>(c.partials + places * kMostSpans * c.padded) + index;
}
// How many of its spans' partials are there, for the heads of a tile. AppendKernel makes it zero,
// and so does the block that joins them.
__device__ inline uint32_t* PartialCount(const AttendCall& c, uint32_t place, uint32_t head) {
  const size_t places = size_t{KeptSegments(c.rows.segment_count)} * c.heads;
  return reinterpret_cast<uint32_t*>(c.partials + places * kMostSpans * (c.padded + 2)) +
         size_t{place} * c.heads + head;
}

// Adds to a number that other blocks add to, and returns what it was. Blocks that see the sum, and
// then fence, see what this thread and those that it has met wrote before.
__device__ inline uint32_t AddReleasing(uint32_t* number, uint32_t more) {
  uint32_t before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;\n"
               : "=r"(before)
               : "l"(number), "r"(more)
               : "memory");
  return before;
}
__device__ inline void FenceDevice() { asm volatile("fence.acq_rel.gpu;\n" ::: "memory"); }

// The spans of a decode row, all of whose partials are there.
struct SpansOfRow {
  uint32_t place, token;  // among the segments that are kept; in the step
  uint32_t count;
};

// A block's item that ended, in shared memory: what its rows have, and whether it was the last.
struct alignas(16) EndedItem {
  SpansOfRow spans;
  uint32_t first_head, heads, unit_head;
  uint32_t written;  // partials
  uint32_t last;
};

// By a warp: a lane has a span, in ascending order, and how it and what is before it are weighed.
// As many spans one after the other give the same numbers; here no span waits for the one before.
struct SpanWeights {
  float first, second, l;

  __device__ explicit SpanWeights(float2 lengths) : l(lengths.y) {
    const uint32_t lane = threadIdx.x % 32;
    const float largest =
        WarpScan(lengths.x, lane, [](float before, float own) { return fmaxf(before, own); });
    const float before = __shfl_up_sync(kAllLanes, largest, 1);
    const JoinWeights w(lane == 0 ? kNothing : before, lengths.x);
    first = w.first;
    second = w.second;
  }
  // Those of another lane.
  __device__ SpanWeights(const SpanWeights& other, uint32_t lane)
      : first(__shfl_sync(kAllLanes, other.first, lane)),
        second(__shfl_sync(kAllLanes, other.second, lane)),
        l(__shfl_sync(kAllLanes, other.l, lane)) {}
};

// What has been joined of four neighbouring columns.
struct JoinedFour {
  float l = 0.0f, o[4] = {};

  __device__ void Add(const SpanWeights& w, float4 next) {
    l = Joined(l, w.l, w.first, w.second);
    o[0] = Joined(o[0], next.x, w.first, w.second);
    o[1] = Joined(o[1], next.y, w.first, w.second);
    o[2] = Joined(o[2], next.z, w.first, w.second);
    o[3] = Joined(o[3], next.w, w.first, w.second);
  }
  __device__ float4 Output() const {
    const float inverse = 1.0f / l;
    return {o[0] * inverse, o[1] * inverse, o[2] * inverse, o[3] * inverse};
  }
};

// By a warp: drops lines of L2 instead of writing them to memory. A head's outputs are whole lines.
__device__ inline void DropPartials(const AttendCall& c, const float* outputs, uint32_t spans) {
  constexpr uint32_t kLine = 32;  // floats
  __syncwarp();                   // all lanes have read theirs
#pragma unroll 1
  for (uint32_t at = threadIdx.x % 32 * kLine; at < spans * c.padded; at += 32 * kLine) {
    asm volatile("discard.global.L2 [%0], 128;\n" ::"l"(outputs + at) : "memory");
  }
}

// A lane's columns of a head's partials: groups of four, 128 columns from each other.
template <uint32_t kFours>
struct JoinedColumns {
  // Spans that are asked for at once: as many as registers allow, since each wait is for L2.
  static constexpr uint32_t kAtOnce = kFours == 1 ? 10 : 7;

  JoinedFour four[kFours];

  // Spans from `first` on. Other blocks wrote them, so L1 is passed by.
  __device__ void Add(const AttendCall& c, const float* outputs, uint32_t column, uint32_t first,
                      uint32_t spans, float2 lengths) {
    float4 next[kAtOnce][kFours];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const float* const from = outputs + size_t{min(first + i, spans - 1)} * c.padded;
#pragma unroll
      for (uint32_t j = 0; j < kFours; ++j) {
        const uint32_t at = min(column + j * 128, c.padded - 4);
        next[i][j] = __ldcg(reinterpret_cast<const float4*>(from + at));
      }
    }
    const SpanWeights weights(lengths);  // while they are on their way
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i) {
      const SpanWeights of_span(weights, (first + i) % 32);
      if (first + i >= spans) continue;
#pragma unroll
      for (uint32_t j = 0; j < kFours; ++j) four[j].Add(of_span, next[i][j]);
    }
  }

  __device__ void Write(const AttendCall& c, float* out, uint32_t column) const {
#pragma unroll
    for (uint32_t j = 0; j < kFours; ++j) {
      const uint32_t at = column + j * 128;
      if (at < c.padded) *reinterpret_cast<float4*>(out + at) = four[j].Output();
    }
  }
};

// By a warp: joins a head's partials and writes its output. A lane has the lengths of one span.
// kDrop: heads are kWidest wide, and partials are dropped afterwards.
template <bool kDrop, uint32_t kWidest>
__device__ void JoinHead(const AttendCall& c, const SpansOfRow& spans, uint32_t head) {
  static_assert(kMostSpans == 32, "a span for each lane");
  constexpr uint32_t kFours = kDrop ? (kWidest + 127) / 128 : 1;
  using Columns = JoinedColumns<kFours>;
  const uint32_t lane = threadIdx.x % 32;
  const size_t index = PartialIndex(c, spans.place, head, 0);
  const float* const outputs = PartialOutput(c, index);
  float* const out = c.out.data + spans.token * c.out.stride + size_t{head} * c.padded;
  const float2 lengths = __ldcg(PartialLength(c, index + min(lane, spans.count - 1)));
  for (uint32_t column = lane * 4; column < c.padded + lane * 4; column += kFours * 128) {
    Columns columns;
#pragma unroll 1
    for (uint32_t first = 0; first < spans.count; first += Columns::kAtOnce) {
      columns.Add(c, outputs, column, first, spans.count, lengths);
    }
    columns.Write(c, out, column);
  }
  if (kDrop) DropPartials(c, outputs, spans.count);
}

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_PARTIALS_CUH_
