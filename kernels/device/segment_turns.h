// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The order in which kernels with many blocks begin with segments (DeviceSegment::turn). A row that
// folds takes about twice as long as another one. If it is begun last, all other blocks wait for
// it; if all that fold are begun first, memory waits for their arithmetic. So they come at even
// distances in the first half. Results do not depend on it.
#ifndef RIVULET_KERNELS_DEVICE_SEGMENT_TURNS_H_
#define RIVULET_KERNELS_DEVICE_SEGMENT_TURNS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/device_types.h"

namespace rivulet {

// Sets the turns of segments of one token each, or none. `fold_interval`: C, at least 1.
inline void SetTurns(std::span<DeviceSegment> segments, uint64_t fold_interval) {
  const auto folds = [&](size_t r) {
    return segments[r].position % fold_interval == fold_interval - 1;
  };
  const size_t count = segments.size();
  size_t fold_count = 0;
  for (size_t r = 0; r < count; ++r) fold_count += folds(r) ? 1 : 0;
  size_t taken = 0;         // of those that fold
  size_t next[2] = {0, 0};  // the first segment that may be the next one, which folds or does not
  for (size_t at = 0; at < count; ++at) {
    const bool others_left = at - taken < count - fold_count;
    const bool due = taken < fold_count && at >= taken * (count / 2) / fold_count;
    const bool takes_fold = due || !others_left;
    size_t& r = next[takes_fold ? 1 : 0];
    while (folds(r) != takes_fold) ++r;
    segments[at].turn = static_cast<uint32_t>(r++ - at);
    taken += takes_fold ? 1 : 0;
  }
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_SEGMENT_TURNS_H_
