// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/timeline.h"

#ifdef RIVULET_TIMELINE

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

#include "kernels/device/timeline.cuh"

namespace rivulet::cuda {
namespace {

// Of the end of the run, in which steps are recorded.
constexpr uint32_t kPrinted = 40000;
constexpr uint64_t kPrintedNanoseconds = 500 << 10;  // of blocks; less than a round of their places

struct Unit {
  const void* symbol;
  const char* file;
};

std::vector<Unit>& Units() {
  static std::vector<Unit> units;
  return units;
}

Timeline*& TimelineOfDevice() {
  static Timeline* timeline = nullptr;
  return timeline;
}

BlockStamps*& BlocksOfDevice() {
  static BlockStamps* blocks = nullptr;
  return blocks;
}

// Null where there is no memory for them.
template <typename T>
T* Zeros(size_t count) {
  T* memory = nullptr;
  if (cudaMalloc(&memory, count * sizeof(T)) != cudaSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  cudaMemset(memory, 0, count * sizeof(T));
  return memory;
}

void PrintBlocks() {
  std::vector<BlockStamps> blocks(BlockPlaces::kCount);
  if (BlocksOfDevice() == nullptr ||
      cudaMemcpy(blocks.data(), BlocksOfDevice(), blocks.size() * sizeof(BlockStamps),
                 cudaMemcpyDeviceToHost) != cudaSuccess) {
    return;
  }
  uint64_t last = 0;
  for (const BlockStamps& block : blocks) last = std::max(last, block.nanoseconds[0]);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const BlockStamps& block = blocks[i];
    if (block.nanoseconds[0] + kPrintedNanoseconds <= last) continue;
    std::fprintf(stderr, "BLOCK %zu %u %u", i / BlockPlaces::kMicroseconds / BlockPlaces::kWarps,
                 block.unit, block.block);
    for (const uint64_t nanoseconds : block.nanoseconds) {
      std::fprintf(stderr, " %llu", static_cast<unsigned long long>(nanoseconds));
    }
    std::fprintf(stderr, "\n");
  }
}

}  // namespace

bool AddTimelineUnit(const void* symbol, const char* file) {
  Units().push_back({symbol, file});
  return true;
}

void StartTimeline() {
  Timeline* const timeline = TimelineOfDevice() = Zeros<Timeline>(1);
  BlockStamps* const blocks = BlocksOfDevice() = Zeros<BlockStamps>(BlockPlaces::kCount);
  for (size_t i = 0; i < Units().size(); ++i) {
    const TimelineUnit unit = {timeline, blocks, static_cast<uint16_t>(i)};
    std::fprintf(stderr, "UNIT %zu %s\n", i, Units()[i].file);
    cudaMemcpyToSymbol(Units()[i].symbol, &unit, sizeof(unit));
  }
  cudaDeviceSynchronize();
}

void PrintTimeline() {
  auto host = std::make_unique<Timeline>();
  const Timeline* const timeline = TimelineOfDevice();
  if (timeline == nullptr || cudaDeviceSynchronize() != cudaSuccess ||
      cudaMemcpy(host.get(), timeline, sizeof(Timeline), cudaMemcpyDeviceToHost) != cudaSuccess) {
    return;
  }
  const uint32_t count = std::min(host->count, kMostStamps);
  for (uint32_t i = count - std::min(count, kPrinted); i < count; ++i) {
    const TimelineStamp& stamp = host->stamps[i];
    std::fprintf(stderr, "STAMP %llu %u %u %u\n",
                 static_cast<unsigned long long>(stamp.nanoseconds),
                 static_cast<uint32_t>(stamp.event), stamp.unit, stamp.warp);
  }
  PrintBlocks();
}

}  // namespace rivulet::cuda

#endif
