// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How the work of a step of softmax attention is cut up (softmax_attention.cu): units are groups of
// a decode row's spans, or tiles of a longer segment's tokens; an item is a unit and a tile of
// heads.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_ITEM_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_ITEM_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/softmax_attention.cuh"

namespace rivulet::cuda::softmax {

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

// units[i] = the units of the range's segments before i; units[range.count]: of all. By one warp.
template <bool kWalk>
__device__ void CountUnits(const AttendCall& c, SegmentRange range, uint32_t tokens,
                           uint32_t* units) {
  const uint32_t lane = threadIdx.x;
  uint32_t before = 0;
  for (uint32_t first = 0; first < range.count; first += 32) {
    const uint32_t i = first + lane;
    uint32_t sum = 0;
    if (i < range.count) {
      sum = UnitsOf<kWalk>(c, range, c.rows.segments[range.first + i], tokens);
    }
    sum = WarpScan(sum, lane);
    if (i < range.count) units[i + 1] = before + sum;
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  if (lane == 0) units[0] = 0;
}

// --- an item -------------------------------------------------------------------------------------

constexpr uint32_t kBlock = 64;  // tokens; a warp scores 16 of them, and has some value columns

// What a block of the grid does at a time. Positions fit 32 bits: a session of more tokens has no
// place for its pages.
struct Item {
  uint32_t place;  // of the segment, in the range
  DeviceSegmentPages pages;
  uint32_t tail, end;  // the segment's tail slot, and where it ends
  uint32_t kv_head, first_head, heads;
  uint32_t unit_head;          // the tile of heads
  uint32_t first, last;        // positions of the rows' tokens
  uint32_t token;              // the first of them, in the step
  uint32_t span;               // tokens of a span
  uint32_t span_index;         // of a decode row: of the next span
  uint32_t spans, all_spans;   // of a decode row: of the item, of the row
  uint32_t block, last_block;  // of kBlock tokens: the next one
};

// `unit`: counted in the segment.
template <bool kWalk>
__device__ void TakeTokens(const AttendCall& c, SegmentRange range, const Tiling& tiling,
                           const DeviceSegment& segment, uint32_t unit, Item& item) {
  const auto position = static_cast<uint32_t>(segment.position);
  item.first = item.last = position;
  if (kWalk) {
    const uint32_t tile = (position / tiling.tokens + unit) * tiling.tokens;
    item.first = max(tile, position);
    item.last = min(tile + tiling.tokens, item.end) - 1;
  }
  item.token = segment.first_token + (item.first - position);
  const uint32_t bits = SpanBits(item.first, c.window);
  const auto seen = static_cast<uint32_t>(FirstSeen(item.first, c.window, c.unseen));
  uint32_t begin = seen, end = item.last;
  if (!kWalk) {
    item.all_spans = (item.last >> bits) - (seen >> bits) + 1;
    item.span_index = unit * range.spans;
    item.spans = min(range.spans, item.all_spans - item.span_index);
    const uint32_t border = ((seen >> bits) + item.span_index) << bits;
    begin = max(border, seen);
    end = min(border + (item.spans << bits) - 1, item.last);
  }
  item.span = 1u << bits;
  item.block = begin / kBlock;
  item.last_block = end / kBlock;
}

// Finds the segment of the item's unit, and what its rows see.
template <bool kWalk>
__device__ Item TakeItem(const AttendCall& c, SegmentRange range, const Tiling& tiling,
                         const uint32_t* units, uint32_t number) {
  const uint32_t tiles = c.kv_heads * tiling.head_tiles, unit = number / tiles;
  uint32_t low = 0, high = range.count;  // units[low] <= unit < units[high]
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (units[middle] <= unit ? low : high) = middle;
  }
  const DeviceSegment& segment = c.rows.segments[range.first + low];
  Item item = {};
  item.place = low;
  item.pages = c.pages.segments[range.first + low];
  item.tail = segment.tail;
  item.end = static_cast<uint32_t>(segment.position) + segment.tokens;
  item.unit_head = number % tiles;
  item.kv_head = item.unit_head / tiling.head_tiles;
  const uint32_t group = c.heads / c.kv_heads,
                 skipped = item.unit_head % tiling.head_tiles * tiling.heads;
  item.first_head = item.kv_head * group + skipped;
  item.heads = min(tiling.heads, group - skipped);
  TakeTokens<kWalk>(c, range, tiling, segment, unit - units[low], item);
  return item;
}

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_ITEM_CUH_
