// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The kernels' side of timeline.h.
#ifndef RIVULET_KERNELS_DEVICE_TIMELINE_CUH_
#define RIVULET_KERNELS_DEVICE_TIMELINE_CUH_

#include <cstdint>

namespace rivulet::cuda {

enum class TimelineEvent : uint32_t { kBegins = 0, kAwaited = 1 };

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

// Each source file of kernels has its own, because device code is not linked across files.
struct TimelineUnit {
  Timeline* timeline;
  uint16_t number;
};
static __device__ TimelineUnit timeline_unit;

bool AddTimelineUnit(const void* symbol, const char* file);
static const bool timeline_unit_added = AddTimelineUnit(&timeline_unit, __BASE_FILE__);

// By the first block of a row of the grid; one stamp for each warp that comes here.
__device__ inline void Stamp(TimelineEvent event, uint32_t row = 0) {
  if (blockIdx.x + blockIdx.z != 0 || blockIdx.y != row || threadIdx.x % 32 != 0) return;
  Timeline* const timeline = timeline_unit.timeline;
  if (timeline == nullptr) return;
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  const uint32_t at = atomicAdd(&timeline->count, 1u);
  if (at >= kMostStamps) return;
  timeline->stamps[at] = {now, event, timeline_unit.number,
                          static_cast<uint16_t>(threadIdx.x / 32)};
}

#else

__device__ inline void Stamp(TimelineEvent, uint32_t = 0) {}

#endif

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_TIMELINE_CUH_
