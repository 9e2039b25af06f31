// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The kernels' side of timeline.h.
#ifndef RIVULET_KERNELS_DEVICE_TIMELINE_CUH_
#define RIVULET_KERNELS_DEVICE_TIMELINE_CUH_

#include <cstddef>
#include <cstdint>

namespace rivulet::cuda {

enum class TimelineEvent : uint32_t { kBegins = 0, kAwaited = 1 };
// Of a block, as its first warp sees them: it begins, the kernels before have ended, what it reads
// first has come, its products are there, the warp ends. bench/block_timeline.py has the numbers.
enum class BlockEvent : uint32_t {
  kBegins = 0,
  kAwaited = 1,
  kLoaded = 2,
  kMultiplied = 3,
  kEnds = 4
};

#ifdef RIVULET_TIMELINE

constexpr uint32_t kMostStamps = 1 << 20;

struct TimelineStamp {
  uint64_t nanoseconds;
  TimelineEvent event;
  uint16_t unit;  // the source file of the kernel
  uint16_t warp;
};

struct Timeline {
  uint32_t count;
  TimelineStamp stamps[kMostStamps];
};

struct BlockStamps {
  static constexpr uint32_t kEvents = 5;
  uint64_t nanoseconds[kEvents];  // 0: no such event
  uint32_t block;                 // of the grid
  uint32_t blocks : 24, unit : 8;
};

// Where a block's stamps are: at its processor, at the number of its first warp there, which no
// other block has meanwhile, and at the microsecond in which it began. The place is computed, since
// a shared counter would cost each block the latency of an atomic operation. Of two blocks that
// begin in the same microsecond at the same place, the stamps of the first are lost.
struct BlockPlaces {
  static constexpr uint32_t kProcessors = 160, kWarps = 64, kMicroseconds = 1024;
  static constexpr size_t kCount = size_t{kProcessors} * kWarps * kMicroseconds;

  static __device__ size_t Of(uint64_t nanoseconds) {
    uint32_t processor, warp;
    asm volatile("mov.u32 %0, %smid;" : "=r"(processor));
    asm volatile("mov.u32 %0, %warpid;" : "=r"(warp));
    const uint64_t microsecond = (nanoseconds >> 10) % kMicroseconds;
    return (size_t{processor % kProcessors} * kWarps + warp % kWarps) * kMicroseconds + microsecond;
  }
};

// Each source file of kernels has its own, because device code is not linked across files.
struct TimelineUnit {
  Timeline* timeline;
  BlockStamps* blocks;  // [BlockPlaces::kCount]
  uint16_t number;
};
static __device__ TimelineUnit timeline_unit;

bool AddTimelineUnit(const void* symbol, const char* file);
static const bool timeline_unit_added = AddTimelineUnit(&timeline_unit, __BASE_FILE__);

__device__ inline uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// By the first block of a row of the grid; one stamp for each warp that comes here.
__device__ inline void Stamp(TimelineEvent event, uint32_t row = 0) {
  if (blockIdx.x + blockIdx.z != 0 || blockIdx.y != row || threadIdx.x % 32 != 0) return;
  Timeline* const timeline = timeline_unit.timeline;
  if (timeline == nullptr) return;
  const uint64_t now = Nanoseconds();
  const uint32_t at = atomicAdd(&timeline->count, 1u);
  if (at >= kMostStamps) return;
  timeline->stamps[at] = {now, event, timeline_unit.number,
                          static_cast<uint16_t>(threadIdx.x / 32)};
}

// Made when the block begins. Only its first thread leaves stamps.
class BlockClock {
 public:
  __device__ BlockClock() {
    const uint64_t now = Nanoseconds();  // before the load of the pointer
    if (threadIdx.x + threadIdx.y + threadIdx.z != 0 || timeline_unit.blocks == nullptr) return;
    at_ = timeline_unit.blocks + BlockPlaces::Of(now);
    const uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    *at_ = {{now}, block, gridDim.x * gridDim.y * gridDim.z, timeline_unit.number};
  }
  __device__ void Stamp(BlockEvent event) const {
    if (at_ != nullptr) at_->nanoseconds[static_cast<uint32_t>(event)] = Nanoseconds();
  }

 private:
  BlockStamps* at_ = nullptr;
};

#else

__device__ inline void Stamp(TimelineEvent, uint32_t = 0) {}

class BlockClock {
 public:
  __device__ void Stamp(BlockEvent) const {}
};

#endif

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_TIMELINE_CUH_
