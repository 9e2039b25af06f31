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

}  // namespace

bool AddTimelineUnit(const void* symbol, const char* file) {
  Units().push_back({symbol, file});
  return true;
}

void StartTimeline() {
  Timeline*& timeline = TimelineOfDevice();
  timeline = nullptr;
  if (cudaMalloc(&timeline, sizeof(Timeline)) != cudaSuccess) return;
  cudaMemset(timeline, 0, sizeof(Timeline));
  for (size_t i = 0; i < Units().size(); ++i) {
    const TimelineUnit unit = {timeline, static_cast<uint16_t>(i)};
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
}

}  // namespace rivulet::cuda

#endif
