// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A block of 16 floats on Highway, the unit that every CPU kernel is written in. Included again for
// each SIMD target (Highway's foreach_target); see kernels/recurrence/recurrence_cpu.cc for the frame.
//
// A Block is one 512-bit vector, two of 256 or four of 128: what a kernel computes in a lane, and the
// order in which lanes are summed, is the same on each. With fused multiply-add (AVX2, AVX-512, NEON)
// the bits are the same too. Targets without it give other bits, consistently.
//
// All functions are per lane but the two reductions, which go down a fixed tree: lane i with lane
// i + 8, then i + 4, i + 2, i + 1.

// Highway's own include guard for files that are included once a target.
#if defined(RIVULET_KERNELS_BASE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RIVULET_KERNELS_BASE_SIMD_INL_H_
#undef RIVULET_KERNELS_BASE_SIMD_INL_H_
#else
#define RIVULET_KERNELS_BASE_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVector = hn::Vec<FloatTag>;
inline constexpr size_t kVectorLanes = HWY_MAX_BYTES / 4 < 16 ? HWY_MAX_BYTES / 4 : 16;
inline constexpr size_t kVectors = 16 / kVectorLanes;

struct Block {
  FloatVector v[kVectors];
};

// Applies f to each vector of the blocks.
template <typename F, typename... Blocks>
HWY_INLINE Block MapBlock(F&& f, const Blocks&... blocks) {
  Block result;
  for (size_t i = 0; i < kVectors; ++i) result.v[i] = f(blocks.v[i]...);
  return result;
}

HWY_INLINE Block ZeroBlock() {
  Block result;
  for (size_t i = 0; i < kVectors; ++i) result.v[i] = hn::Zero(FloatTag());
  return result;
}

HWY_INLINE Block SetBlock(float value) {
  Block result;
  for (size_t i = 0; i < kVectors; ++i) result.v[i] = hn::Set(FloatTag(), value);
  return result;
}

// Unaligned is as fast as aligned on aligned addresses, so there is one load and one store.
HWY_INLINE Block LoadBlock(const float* from) {
  Block result;
  for (size_t i = 0; i < kVectors; ++i) {
    result.v[i] = hn::LoadU(FloatTag(), from + i * kVectorLanes);
  }
  return result;
}

// bf16 → fp32 is exact: the bits move up by 16.
HWY_INLINE Block LoadBlock(const uint16_t* from) {
  const hn::Rebind<uint32_t, FloatTag> wide;
  const hn::Rebind<uint16_t, FloatTag> narrow;
  Block result;
  for (size_t i = 0; i < kVectors; ++i) {
    const auto bits = hn::PromoteTo(wide, hn::LoadU(narrow, from + i * kVectorLanes));
    result.v[i] = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
  }
  return result;
}

HWY_INLINE void StoreBlock(const Block& block, float* to) {
  for (size_t i = 0; i < kVectors; ++i) hn::StoreU(block.v[i], FloatTag(), to + i * kVectorLanes);
}

// Rounds to nearest even. For finite values and infinities; a NaN may become an infinity.
HWY_INLINE void StoreBlock(const Block& block, uint16_t* to) {
  const hn::Rebind<uint32_t, FloatTag> wide;
  const hn::Rebind<uint16_t, FloatTag> narrow;
  for (size_t i = 0; i < kVectors; ++i) {
    const auto bits = hn::BitCast(wide, block.v[i]);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(wide, 1u));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(wide, 0x7fffu)));
    hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(rounded)), narrow, to + i * kVectorLanes);
  }
}

HWY_INLINE Block MulAdd(const Block& a, const Block& b, const Block& c) {
  return MapBlock([](auto x, auto y, auto z) { return hn::MulAdd(x, y, z); }, a, b, c);
}
HWY_INLINE Block Add(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) { return hn::Add(x, y); }, a, b);
}
HWY_INLINE Block Sub(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) { return hn::Sub(x, y); }, a, b);
}
HWY_INLINE Block Mul(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) { return hn::Mul(x, y); }, a, b);
}
HWY_INLINE Block Div(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) { return hn::Div(x, y); }, a, b);
}
HWY_INLINE Block Max(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) { return hn::Max(x, y); }, a, b);
}
HWY_INLINE Block Exp(const Block& a) {
  return MapBlock([](auto x) { return hn::Exp(FloatTag(), x); }, a);
}
HWY_INLINE Block Log1p(const Block& a) {
  return MapBlock([](auto x) { return hn::Log1p(FloatTag(), x); }, a);
}

template <typename F>
HWY_INLINE float ReduceBlock(const Block& block, F&& f) {
  alignas(64) float lane[16];
  StoreBlock(block, lane);
  for (size_t width = 8; width != 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lane[i] = f(lane[i], lane[i + width]);
  }
  return lane[0];
}
HWY_INLINE float SumBlock(const Block& block) {
  return ReduceBlock(block, [](float a, float b) { return a + b; });
}
HWY_INLINE float MaxBlock(const Block& block) {
  return ReduceBlock(block, [](float a, float b) { return a > b ? a : b; });
}

// The first `count` (< 16) floats, the rest `fill`; and the store of as many. For remainders, so that
// they run the same code as whole blocks.
HWY_INLINE Block LoadPartial(const float* from, size_t count, float fill = 0.0f) {
  alignas(64) float lane[16];
  for (size_t i = 0; i < 16; ++i) lane[i] = i < count ? from[i] : fill;
  return LoadBlock(lane);
}
HWY_INLINE void StorePartial(const Block& block, float* to, size_t count) {
  alignas(64) float lane[16];
  StoreBlock(block, lane);
  for (size_t i = 0; i < count; ++i) to[i] = lane[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#endif  // RIVULET_KERNELS_BASE_SIMD_INL_H_
