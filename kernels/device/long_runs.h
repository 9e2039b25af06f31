// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How many runs of pieces may be long where beginning a run takes long (sums_stream.cu).
#ifndef RIVULET_KERNELS_DEVICE_LONG_RUNS_H_
#define RIVULET_KERNELS_DEVICE_LONG_RUNS_H_

#include <algorithm>
#include <cstdint>

namespace rivulet {

// Of `pieces` that so many blocks share, nearly all are in runs of `run` pieces; the rest are for
// short runs, which make the blocks end together. No block gets more than its share of all pieces
// in long runs, but for a twenty-fifth: the blocks take runs in turn, and all would wait for one
// that takes another long run when the others have none left. All numbers are at least 1.
constexpr uint32_t MostLongRuns(uint32_t pieces, uint32_t run, uint32_t blocks) {
  const uint64_t each = uint64_t{pieces} * 26 / 25 / (uint64_t{run} * blocks);
  return static_cast<uint32_t>(std::min(uint64_t{pieces / run / 16 * 15}, each * blocks));
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_LONG_RUNS_H_
