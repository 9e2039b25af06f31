// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How AttendKernel and AttendStreamKernel are launched for the rows of some segments. Kernels of
// rows that see chosen pools are compiled apart, in chosen_attention.cu.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_LAUNCH_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_LAUNCH_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/device/softmax_attender.cuh"
#include "kernels/device/softmax_stream.cuh"

namespace rivulet::cuda::softmax {

constexpr int ResidentBlocks(int tiles, bool shared) { return shared ? 1 : tiles == 1 ? 3 : 2; }

template <typename Kv, int kParts, int kTiles, int kPairs, RowKind kKind, bool kShared,
          bool kChosen>
__global__ void __launch_bounds__(kThreads, ResidentBlocks(kTiles, kShared))
    AttendKernel(const __grid_constant__ AttendCall call, SegmentRange range) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  Attender<Kv, kParts, kTiles, kPairs, kKind, kShared, kChosen>(call, range, memory).Run();
}

// Groups of spans: enough for an even load, if contexts are long. With 20 for each block 128 rows
// of 4096 tokens took 534 us instead of 528 on an H200.
inline uint32_t SpansOfGroup(uint32_t spans, uint32_t blocks) {
  constexpr uint32_t kGroupsOfBlock = 40;
  uint32_t together = 1;
  while (together < kMostSpans && spans / (2 * together) >= kGroupsOfBlock * blocks) together *= 2;
  return together;
}

// The blocks of a kernel for segments of one token, which take groups of range.spans spans. `most`:
// of a processor, if memory allows.
inline uint32_t DecodeBlocks(SegmentRange& range, uint32_t heads, uint32_t shared, uint32_t most,
                             const LaunchContext& context) {
  const uint32_t resident = max(1u, min(most, kSharedOfBlocks / (shared + kSharedReserve)));
  const uint32_t spans = range.count * heads * kMostSpans;
  const uint32_t blocks = min(spans, context.processors * resident);
  range.spans = SpansOfGroup(spans, blocks);
  return blocks;
}

template <typename Kv, int kParts, int kTiles, int kPairs, RowKind kKind, bool kShared,
          bool kChosen>
void LaunchKernel(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  constexpr bool kWalk = kKind == RowKind::kWalked;
  using Work = Attender<Kv, kParts, kTiles, kPairs, kKind, kShared, kChosen>;
  const auto kernel = AttendKernel<Kv, kParts, kTiles, kPairs, kKind, kShared, kChosen>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfBlocks);
  context.Check(prepared);
  const auto shared = static_cast<uint32_t>(Work::SharedBytes(call.padded, 0));
  const Tiling tiling = Tiling::Of(call.heads / call.kv_heads, Work::kRows, !kWalk);
  const uint32_t heads = call.kv_heads * tiling.head_tiles;
  uint32_t blocks = 0;
  if (kWalk) {
    // A segment's tiles: its tokens' and one that is cut by its beginning.
    blocks = (call.rows.tokens / tiling.tokens + 2 * range.count) * heads;
  } else {
    blocks = DecodeBlocks(range, heads, shared, 8, context);
  }
  context.Run(kernel, dim3(blocks), kThreads, shared, call, range);
}

template <int kParts, int kPairs, bool kExact>
__global__ void __launch_bounds__(kStreamThreads, AttendStream<kParts, kPairs, kExact>::kResident)
    AttendStreamKernel(const __grid_constant__ AttendCall call, SegmentRange range) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  AttendStream<kParts, kPairs, kExact>(call, range, memory).Run();
}

// The ring takes what the processor's blocks leave.
template <int kParts, int kPairs, bool kExact>
void LaunchStream(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  using Work = AttendStream<kParts, kPairs, kExact>;
  constexpr uint32_t kMostSlots = 8;
  const auto kernel = AttendStreamKernel<kParts, kPairs, kExact>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfBlocks);
  context.Check(prepared);
  constexpr size_t kShare = kSharedOfBlocks / Work::kResident - kSharedReserve;
  range.slots = 1;
  while (range.slots < kMostSlots && Work::SharedBytes(call.padded, range.slots + 1) <= kShare) {
    ++range.slots;
  }
  const auto shared = static_cast<uint32_t>(Work::SharedBytes(call.padded, range.slots));
  const Tiling tiling = Tiling::Of(call.heads / call.kv_heads, Work::kRows, true);
  const uint32_t blocks =
      DecodeBlocks(range, call.kv_heads * tiling.head_tiles, shared, Work::kResident, context);
  context.Run(kernel, dim3(blocks), kStreamThreads, shared, call, range);
}

// Of segments of one token.
template <typename Kv, int kParts, int kPairs, bool kShared>
void LaunchDecoded(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  if constexpr (kShared || sizeof(Kv) == 4) {
    constexpr RowKind kDecoded = RowKind::kDecoded;
    LaunchKernel<Kv, kParts, 1, kPairs, kDecoded, kShared, false>(call, range, context);
  } else if (call.padded == kPairs * kWarps * 16) {
    LaunchStream<kParts, kPairs, true>(call, range, context);
  } else {
    LaunchStream<kParts, kPairs, false>(call, range, context);
  }
}

// Of longer segments: as many rows as registers and shared memory allow.
template <typename Kv, int kParts, int kPairs, bool kShared, bool kChosen = false>
void LaunchWalked(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  constexpr int kTiles = kParts == 2 || kShared ? 1 : kPairs == 4 ? 2 : 4;
  LaunchKernel<Kv, kParts, kTiles, kPairs, RowKind::kWalked, kShared, kChosen>(call, range,
                                                                               context);
}

// Both where rows see chosen pools; `walked`: longer segments.
template <typename Kv, int kParts>
void LaunchChosen(const AttendCall& call, SegmentRange range, bool walked,
                  const LaunchContext& context);

}  // namespace rivulet::cuda::softmax

#endif  // RIVULET_KERNELS_DEVICE_SOFTMAX_LAUNCH_CUH_
