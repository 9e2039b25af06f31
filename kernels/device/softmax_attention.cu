// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention over pages of keys and values (softmax_operations.h).
//
// AppendKernel writes the step's keys and values: rows of chunks that end in the step to their
// pages, later ones to the tail. AttendKernel then reads, or AttendStreamKernel where segments have
// one token (a decode row's first pages before that).
// A block takes one kv head and up to 16 · kTiles query rows of it: the head's queries of a token,
// or of a tile of tokens. All rows of a tile have spans of the same length.
//
// Bits. A span is walked in blocks of kBlock tokens at absolute borders, ascending:
//
//   score = chain over D in k16 steps;  m' = max(m, scores of the block);  a = e^{m-m'}
//   p = e^{score-m'};  l' = a·l + Σ p (eight tokens ascending, then one tree over eight sums)
//   o' = chain over the block's tokens in k16 steps that starts from a·o
//
// A token that a row does not see has p = 0, so a block or a span of such tokens changes nothing,
// and a row's bits do not depend on the rows beside it. Of segments of one token a block of the
// grid reads one span or several adjacent ones (SpansOfGroup). Where a row sees several, the block
// that is the last to write a partial joins all of them; other rows walk their spans and join as
// they go, by the same function.
//
// Bytes expected: keys and values once for each tile of rows. Partials of decode rows are written
// and read in L2; those of heads that are 64, 128 or 256 wide never reach memory (DropPartials).
#include "kernels/device/softmax_launch.cuh"
#include "kernels/device/softmax_partials.cuh"

namespace rivulet::cuda {
namespace {

using namespace softmax;

// --- append --------------------------------------------------------------------------------------

struct alignas(8) FourHalves {
  uint32_t numbers[2];
};
__device__ void CopyFour(bf16* to, const bf16* from) {
  *reinterpret_cast<FourHalves*>(to) = *reinterpret_cast<const FourHalves*>(from);
}
__device__ void CopyFour(float* to, const float* from) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

// Four neighbours of a segment's keys or values, and where they go.
template <typename Kv>
struct AppendedFour {
  const AttendCall* call;
  const DeviceSegment* segment;
  const DeviceSegmentPages* pages;
  const float* from;  // of token 0 of the step
  uint32_t stride;
  size_t tail_offset, page_offset;
  uint32_t at;  // of row 0 in the plane

  __device__ Kv* Tail(uint32_t row) const {
    const DeviceSlots& slots = call->slots;
    std::byte* plane = slots.tails + segment->tail * slots.tail_stride + tail_offset;
    return reinterpret_cast<Kv*>(plane) + at + row * call->padded;
  }
  __device__ Kv* Page(uint64_t page, uint32_t row) const {
    const DeviceSlots& slots = call->slots;
    std::byte* plane = slots.pages + SlotOf(*call, *pages, page) * slots.page_stride + page_offset;
    return reinterpret_cast<Kv*>(plane) + at + row * call->padded;
  }
  __device__ float4 Input(uint64_t position) const {
    const size_t token = segment->first_token + static_cast<size_t>(position - segment->position);
    return *reinterpret_cast<const float4*>(from + token * stride);
  }

  // The tokens of a chunk that ends in the segment, after those that wait in the tail.
  __device__ void Seal(uint64_t chunk) const {
    const uint64_t begin = chunk * kChunk;
    const auto old =
        begin < segment->position ? static_cast<uint32_t>(segment->position - begin) : 0;
    Kv* page = Page(chunk, 0);
    const Kv* tail = Tail(0);
#pragma unroll
    for (uint32_t row = 0; row < kChunk; ++row) {
      Kv* to = page + row * call->padded;
      if (row < old) {
        CopyFour(to, tail + row * call->padded);
      } else {
        StoreFour(to, Input(begin + row));
      }
    }
  }

  // The tokens after the last border.
  __device__ void Keep(uint64_t end) const {
    const uint64_t border = end / kChunk * kChunk;
    for (uint64_t p = max(border, segment->position); p < end; ++p) {
      StoreFour(Tail(static_cast<uint32_t>(p - border)), Input(p));
    }
  }
};

// A thread owns four neighbours of the tail: it reads the old rows before it writes new ones. Block
// z seals the segment's chunk number z; block 0 keeps the open chunk too.
template <typename Kv>
__global__ void __launch_bounds__(kThreads) AppendKernel(const __grid_constant__ AttendCall c) {
  AllowNextKernel();
  const DeviceSegment segment = c.rows.segments[blockIdx.y];
  AwaitLastKernel();
  if (c.out.data != nullptr && blockIdx.x == 0 && blockIdx.z == 0) {
    for (uint32_t head = threadIdx.x; head < c.heads; head += kThreads) {
      *PartialCount(c, blockIdx.y % kSpanSegments, head) = 0;
    }
  }
  const uint32_t columns = c.kv_heads * c.padded;
  uint32_t i = (blockIdx.x * kThreads + threadIdx.x) * 4;
  if (segment.tokens == 0 || i >= (c.values_are_keys ? 1 : 2) * columns) return;
  const bool value = i >= columns;
  if (value) i -= columns;
  const uint32_t head = i / c.padded;
  const AppendedFour<Kv> four{.call = &c,
                              .segment = &segment,
                              .pages = &c.pages.segments[blockIdx.y],
                              .from = (value ? c.v : c.k) + i,
                              .stride = value ? c.v_stride : c.k_stride,
                              .tail_offset = value ? c.tail_value_offset : c.tail_key_offset,
                              .page_offset = value ? c.page_value_offset : c.page_key_offset,
                              .at = head * kChunk * c.padded + i % c.padded};
  const uint64_t end = segment.position + segment.tokens;
  const uint64_t chunk = segment.position / kChunk + blockIdx.z;
  if (chunk < end / kChunk) four.Seal(chunk);
  if (blockIdx.z == 0) four.Keep(end);
}

// --- launch --------------------------------------------------------------------------------------

template <typename Kv, int kParts, int kPairs, bool kShared = false>
void LaunchRange(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  constexpr uint32_t kWidest = kPairs * kWarps * 16;
  static_assert(!kShared || kWidest == kMostSharedWidth);
  const bool chosen = call.pool != 0;
  if (chosen) {
    LaunchChosen<Kv, kParts>(call, range, false, context);
  } else {
    LaunchDecoded<Kv, kParts, kPairs, kShared>(call, range, context);
  }
  if (call.rows.single) return;
  if (chosen) {
    LaunchChosen<Kv, kParts>(call, range, true, context);
  } else {
    LaunchWalked<Kv, kParts, kPairs, kShared>(call, range, context);
  }
}

template <typename Kv, int kParts>
void LaunchPages(const AttendCall& call, const LaunchContext& context) {
  const uint32_t fours = (call.values_are_keys ? 1 : 2) * call.kv_heads * call.padded / 4;
  const uint32_t chunks = call.rows.single ? 1 : call.rows.tokens / kChunk + 1;
  context.Run(AppendKernel<Kv>,
              dim3((fours + kThreads - 1) / kThreads, call.rows.segment_count, chunks), kThreads, 0,
              call);
  if (call.out.data == nullptr) return;
  const uint32_t pairs = (call.padded / 16 + kWarps - 1) / kWarps;
  for (uint32_t first = 0; first < call.rows.segment_count; first += kSpanSegments) {
    const uint32_t count = min(kSpanSegments, call.rows.segment_count - first);
    const SegmentRange range{first, count, 1, context.counter};
    if (call.values_are_keys) {
      constexpr int kSharedPairs = kMostSharedWidth / 16 / kWarps;
      LaunchRange<Kv, kParts, kSharedPairs, true>(call, range, context);
    } else if (pairs == 1) {
      LaunchRange<Kv, kParts, 1>(call, range, context);
    } else if (pairs == 2) {
      LaunchRange<Kv, kParts, 2>(call, range, context);
    } else {
      LaunchRange<Kv, kParts, 4>(call, range, context);
    }
  }
}

}  // namespace

void LaunchAttend(const AttendCall& call, bool fp32_products, const LaunchContext& context) {
  const uint32_t widest = call.values_are_keys ? kMostSharedWidth : kMostAttendedWidth;
  const auto misaligned = [](const float* pointer, size_t bytes) {
    return reinterpret_cast<uintptr_t>(pointer) % bytes != 0;
  };
  if (call.padded > widest || misaligned(call.partials, kPartialAlignment) ||
      misaligned(call.out.data, sizeof(float4)) || call.out.stride % 4 != 0) {
    context.Check(cudaErrorInvalidValue);
  }
  if (!call.bf16_pages) {
    LaunchPages<float, 2>(call, context);
  } else if (fp32_products) {
    LaunchPages<bf16, 2>(call, context);
  } else {
    LaunchPages<bf16, 1>(call, context);
  }
}

}  // namespace rivulet::cuda