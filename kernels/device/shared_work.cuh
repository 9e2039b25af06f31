// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How the blocks of a kernel share out its work: each begins with one or two pieces that are its
// own and then takes the next one that no block has taken.
#ifndef RIVULET_KERNELS_DEVICE_SHARED_WORK_CUH_
#define RIVULET_KERNELS_DEVICE_SHARED_WORK_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_types.h"

namespace rivulet::cuda {

// Division by a number that a launch knows: n / divisor = n · multiplier / 2^40, rounded down,
// where n · divisor < 2^40 and n / divisor < 2^24.
struct Divisor {
  uint32_t divisor;
  uint64_t multiplier;

  static constexpr Divisor Of(uint32_t divisor) {
    return {divisor, ((uint64_t{1} << 40) + divisor - 1) / divisor};
  }
  // Whether it divides all numbers below `count`.
  constexpr bool Serves(uint64_t count) const {
    return count * divisor < uint64_t{1} << 40 && count / divisor < uint64_t{1} << 24;
  }
};
__device__ inline uint32_t Over(uint32_t n, const Divisor& by) {
  return static_cast<uint32_t>(n * by.multiplier >> 40);
}

// How many pieces each block can be given as its own, at most two: otherwise a block would take a
// piece that there is not, and the counter of WorkCounter would not become zero.
constexpr uint32_t MostGiven(uint32_t pieces, uint32_t blocks) {
  return pieces < 2 * blocks ? 1 : 2;
}

// The pieces that the blocks take. The first `given` of a block, one or two, are its own: the
// pieces of its number, and of its number plus that of all blocks. After these it takes the next
// piece that no block has taken, from a counter. The counter may be used only after the kernel
// before has ended (AwaitLastKernel), and answers about a microsecond later; a given piece is known
// at once. The counter is zero before the launch, and again after it.
class WorkCounter {
 public:
  // `given` is at most MostGiven(pieces, gridDim.x).
  __device__ WorkCounter(uint32_t* taken, uint32_t pieces, uint32_t given)
      : taken_(taken), pieces_(pieces), given_(given) {}

  // By one warp of a block, once for each piece that it took; it asks the counter unless the next
  // piece is given. The number is there when Next needs it. Not atomicAdd: the compiler adds up
  // those of a warp and shares out the sum, for which the warp waits. It leaves atomicInc alone,
  // unless the bound is all ones.
  __device__ void Ask() {
    constexpr uint32_t kMostPieces = uint32_t{1} << 31;
    if (++asked_ < given_) return;
    if (threadIdx.x % 32 == 0) before_ = atomicInc(taken_, kMostPieces);
  }
  // Whether Next may be called: the next piece is given, or was asked for.
  __device__ bool KnowsNext() const { return asked_ > 0 || given_ > 1; }
  // The piece after the last one that was taken, until the next Ask; there may be none of that
  // number. By all lanes of the warp, where KnowsNext.
  __device__ uint32_t Next() const {
    if (asked_ < given_) return gridDim.x + blockIdx.x;
    return given_ * gridDim.x + __shfl_sync(0xffffffffu, before_, 0);
  }

  // By lane 0, when there is no more work. The block that asked last prepares the counter for the
  // next launch.
  __device__ void End() const {
    if (before_ + 1 == pieces_ - (given_ - 1) * gridDim.x) *taken_ = 0;
  }

 private:
  uint32_t* const taken_;
  const uint32_t pieces_;
  const uint32_t given_;
  uint32_t asked_ = 0;
  uint32_t before_ = 0;  // lane 0: how many pieces that are not given come before the next one
};

// By one warp: brings the segments, of which each piece of work reads one, into L1.
__device__ inline void FetchSegments(const DeviceRows& rows) {
  constexpr uint32_t kLine = 128, kMostBytes = 16 << 10;  // a part of L1
  const uint32_t bytes =
      min(static_cast<uint32_t>(rows.segment_count * sizeof(DeviceSegment)), kMostBytes);
  const auto* segments = reinterpret_cast<const std::byte*>(rows.segments);
  for (uint32_t at = threadIdx.x % 32 * kLine; at < bytes; at += 32 * kLine) {
    asm volatile("prefetch.global.L1 [%0];\n" ::"l"(segments + at));
  }
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_SHARED_WORK_CUH_
