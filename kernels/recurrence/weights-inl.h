// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The small sums and exponentials that turn queries and tail rows into weights, shared by the
// primitive's files so that the same pair gives the same bits in each. Included again for each SIMD
// target, as kernels/base/simd-inl.h.

#if defined(RIVULET_KERNELS_RECURRENCE_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIVULET_KERNELS_RECURRENCE_WEIGHTS_INL_H_
#undef RIVULET_KERNELS_RECURRENCE_WEIGHTS_INL_H_
#else
#define RIVULET_KERNELS_RECURRENCE_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

HWY_INLINE float ExpOf(float x) { return hn::GetLane(hn::Exp(FloatTag(), hn::Set(FloatTag(), x))); }

// e^x of a log decay x, and NaN where x is not finite. Highway's Exp gives 0 for NaN: what a broken
// decay weights would vanish from the outputs instead of making them NaN.
HWY_INLINE Block DecayOf(const Block& x) { return Add(Exp(x), Sub(x, x)); }
HWY_INLINE float DecayOf(float x) { return ExpOf(x) + (x - x); }

HWY_INLINE float Dot(const float* x, const float* y, size_t padded) {
  Block sum = ZeroBlock();
  for (size_t i = 0; i < padded; i += kBlock) {
    sum = MulAdd(LoadBlock(x + i), LoadBlock(y + i), sum);
  }
  return SumBlock(sum);
}

// Lane s = e^{power (c - c_{first + s})} for the tail rows first + s < rows, at most a block of
// them; later rows are never looked at.
HWY_INLINE Block RowDecays(const float* log_decay, size_t stride, size_t first, size_t rows,
                           float c, float power) {
  alignas(64) float difference[kBlock] = {};
  const size_t count = std::min(rows - first, kBlock);
  for (size_t s = 0; s < count; ++s) difference[s] = c - log_decay[(first + s) * stride];
  return DecayOf(Mul(SetBlock(power), LoadBlock(difference)));
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#endif  // RIVULET_KERNELS_RECURRENCE_WEIGHTS_INL_H_
