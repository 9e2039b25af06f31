// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How AttendKernel is launched for the rows of some segments (softmax_attention.cu). Kernels of
// rows that see chosen pools are compiled apart, in chosen_attention.cu.
#ifndef RIVULET_KERNELS_DEVICE_SOFTMAX_LAUNCH_CUH_
#define RIVULET_KERNELS_DEVICE_SOFTMAX_LAUNCH_CUH_

#include <algorithm>
#include <cstdint>

#include "kernels/device/softmax_attender.cuh"

namespace rivulet::cuda::softmax {

constexpr int ResidentBlocks(RowKind kind, int parts, int tiles, int pairs, bool shared) {
  if (shared) return 1;
  if (kind == RowKind::kManyDecoded && pairs <= 2 && parts == 1) return 5;
  return tiles == 1 ? 3 : 2;
}

template <typename Kv, int kParts, int kTiles, int kPairs, RowKind kKind, bool kShared,
          bool kChosen>
__global__ void __launch_bounds__(kThreads, ResidentBlocks(kKind, kParts, kTiles, kPairs, kShared))
    AttendKernel(const __grid_constant__ AttendCall call, SegmentRange range) {
  extern __shared__ __align__(16) std::byte memory[];
  AllowNextKernel();
  Attender<Kv, kParts, kTiles, kPairs, kKind, kShared, kChosen>(call, range, memory).Run();
}

// Groups of spans: enough for an even load, if contexts are long. With 10 for each block 128 rows
// of 4096 tokens took 845 us instead of 823 on an H100.
inline uint32_t SpansOfGroup(uint32_t spans, uint32_t blocks) {
  constexpr uint32_t kGroupsOfBlock = 20;
  uint32_t together = 1;
  while (together < kMostSpans && spans / (2 * together) >= kGroupsOfBlock * blocks) together *= 2;
  return together;
}

template <typename Kv, int kParts, int kTiles, int kPairs, RowKind kKind, bool kShared,
          bool kChosen>
void LaunchKernel(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  constexpr uint32_t kSharedOfABlock = 227 << 10, kSharedOfAProcessor = 228 << 10;
  constexpr bool kWalk = kKind == RowKind::kWalked;
  using Work = Attender<Kv, kParts, kTiles, kPairs, kKind, kShared, kChosen>;
  const auto kernel = AttendKernel<Kv, kParts, kTiles, kPairs, kKind, kShared, kChosen>;
  static const cudaError_t prepared =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedOfABlock);
  context.Check(prepared);
  const auto shared = static_cast<uint32_t>(Work::SharedBytes(call.padded));
  const Tiling tiling = Tiling::Of(call.heads / call.kv_heads, Work::kRows, !kWalk);
  const uint32_t heads = call.kv_heads * tiling.head_tiles;
  uint32_t blocks = 0;
  if (kWalk) {
    // A segment's tiles: its tokens' and one that is cut by its beginning.
    blocks = (call.rows.tokens / tiling.tokens + 2 * range.count) * heads;
  } else {
    const uint32_t resident = max(1u, min(8u, kSharedOfAProcessor / (shared + 1024)));
    const uint32_t spans = range.count * heads * kMostSpans;
    blocks = min(spans, context.processors * resident);
    range.spans = SpansOfGroup(spans, blocks);
  }
  context.Run(kernel, dim3(blocks), kThreads, shared, call, range);
}

// Of segments of one token.
template <typename Kv, int kParts, int kPairs, bool kShared>
void LaunchDecoded(const AttendCall& call, SegmentRange range, const LaunchContext& context) {
  constexpr RowKind kFew = RowKind::kFewDecoded, kMany = RowKind::kManyDecoded;
  const auto processors = static_cast<uint32_t>(context.processors);
  if (range.count * call.kv_heads * kMostSpans <= 3 * processors) {
    LaunchKernel<Kv, kParts, 1, kPairs, kFew, kShared, false>(call, range, context);
  } else {
    LaunchKernel<Kv, kParts, 1, kPairs, kMany, kShared, false>(call, range, context);
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
