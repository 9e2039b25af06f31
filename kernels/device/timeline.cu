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

void PrintBlock(size_t processor, const BlockStamps& block) {
  std::fprintf(stderr, "BLOCK %zu %u %u %u", processor, block.unit, block.block, block.blocks);
  for (const uint64_t nanoseconds : block.nanoseconds) {
    std::fprintf(stderr, " %llu", static_cast<unsigned long long>(nanoseconds));
  }
  std::fprintf(stderr, "\n");
}

void PrintBlocks() {
  if (BlocksOfDevice() == nullptr) return;
  std::vector<BlockStamps> blocks(BlockPlaces::kCount);
  if (cudaMemcpy(blocks.data(), BlocksOfDevice(), blocks.size() * sizeof(BlockStamps),
                 cudaMemcpyDeviceToHost) != cudaSuccess) {
    return;
  }
  uint64_t last = 0;
  for (const BlockStamps& block : blocks) last = std::max(last, block.nanoseconds[0]);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const uint64_t begins = blocks[i].nanoseconds[0];
    if (begins == 0 || begins + kPrintedNanoseconds <= last) continue;
    PrintBlock(i / BlockPlaces::kMicroseconds / BlockPlaces::kWarps, blocks[i]);
  }
}

void PrintKernels(const Timeline& timeline) {
  const uint32_t count = std::min(timeline.count, kMostStamps);
  for (uint32_t i = count - std::min(count, kPrinted); i < count; ++i) {
    const TimelineStamp& stamp = timeline.stamps[i];
    std::fprintf(stderr, "STAMP %llu %u %u %u\n",
                 static_cast<unsigned long long>(stamp.nanoseconds),
                 static_cast<uint32_t>(stamp.event), stamp.unit, stamp.warp);
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
  Timeline*& timeline = TimelineOfDevice();
  auto host = std::make_unique<Timeline>();
  if (timeline != nullptr && cudaDeviceSynchronize() == cudaSuccess &&
      cudaMemcpy(host.get(), timeline, sizeof(Timeline), cudaMemcpyDeviceToHost) == cudaSuccess) {
    PrintKernels(*host);
    PrintBlocks();
  }
  cudaFree(timeline);
  cudaFree(BlocksOfDevice());
  timeline = nullptr;
  BlocksOfDevice() = nullptr;
}

}  // namespace rivulet::cuda

#endif
