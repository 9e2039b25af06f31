// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/parallel.h"
#include "kernels/ops/heads/heads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/heads/heads_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"
#include "kernels/ops/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

// The last block of a head: `count` numbers, then zeros, whatever f(0) is.
HWY_INLINE void StoreHeadEnd(const Block& block, float* to, size_t count) {
  alignas(64) float lane[16];
  StoreBlock(block, lane);
  StoreBlock(LoadPartial(lane, count), to);
}

template <Activation f>
HWY_INLINE void PadHead(const float* x, size_t width, const Block& scale, float* y) {
  ForEachBlock(width, [=](size_t i, size_t n) HWY_ATTR {
    const Block scaled = Mul(ActivateBlock<f>(LoadUpTo(x + i, n)), scale);
    if (n == 16) return StoreBlock(scaled, y + i);
    StoreHeadEnd(scaled, y + i, n);
  });
}

void PadHeadsRow(const float* x, size_t heads, size_t width, Activation f, float scale, float* y) {
  const Block factor = SetBlock(scale);
  VisitActivation(f, [=](auto constant) HWY_ATTR {
    for (size_t h = 0; h < heads; ++h) {
      PadHead<decltype(constant)::value>(x + h * width, width, factor,
                                         y + h * PaddedColumns(width));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(PadHeadsRow);

void PadHeads(ConstFloatMatrix x, size_t heads, size_t width, Activation f, float scale,
              FloatMatrix y, ThreadPool& pool) {
  const auto row = HWY_DYNAMIC_DISPATCH(PadHeadsRow);
  ParallelRows(pool, x.rows, heads * width,
               [&](size_t t) { row(x.row(t), heads, width, f, scale, y.row(t)); });
}

}  // namespace rivulet
#endif  // HWY_ONCE
