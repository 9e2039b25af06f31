// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "kernels/base/aligned_buffer.h"
#include "kernels/ops/linear/machine_limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/linear/machine_limits_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// Four streams, as Linear reads four panels: one stream alone leaves bandwidth unused.
float ReadFloatsSum(const float* data, size_t count) {
  Block sums[4] = {ZeroBlock(), ZeroBlock(), ZeroBlock(), ZeroBlock()};
  for (size_t i = 0; i < count / 4; i += 16) {
    for (size_t k = 0; k < 4; ++k) sums[k] = Add(sums[k], LoadBlock(data + k * (count / 4) + i));
  }
  return SumBlock(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
}

float MultiplyAddsSum(size_t rounds) {
  Block sums[12];
  for (Block& sum : sums) sum = SetBlock(1.0f);
  const Block factor = SetBlock(0.999f);
  for (size_t i = 0; i < rounds; ++i) {
    for (Block& sum : sums) sum = MulAdd(sum, factor, factor);
  }
  for (size_t k = 1; k < 12; ++k) sums[0] = Add(sums[0], sums[k]);
  return SumBlock(sums[0]);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(ReadFloatsSum);
HWY_EXPORT(MultiplyAddsSum);

namespace {
volatile float kept;
}  // namespace

void ReadFloats(const float* data, size_t count) {
  kept = HWY_DYNAMIC_DISPATCH(ReadFloatsSum)(data, count);
}

double ReadBandwidth(ThreadPool& pool, size_t bytes) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kPasses = 10, kParts = 256;
  const size_t part = bytes / sizeof(float) / kParts / 64 * 64;
  AlignedBuffer<float> memory(kParts * part);
  // Pages that were never written all map to one page of zeros, which is in the cache.
  std::fill_n(memory.data(), memory.size(), 1.0f);
  double best = 0;
  for (size_t pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(kParts, [&](size_t i) { ReadFloats(memory.data() + i * part, part); });
    const std::chrono::duration<double> seconds = Clock::now() - start;
    best = std::max(best, static_cast<double>(kParts * part * sizeof(float)) / seconds.count());
  }
  return best;
}

void MultiplyAdds(size_t rounds) { kept = HWY_DYNAMIC_DISPATCH(MultiplyAddsSum)(rounds); }

}  // namespace rivulet
#endif  // HWY_ONCE
