// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A block of 16 floats on Highway, the unit of every CPU kernel. Included once for each SIMD target
// (Highway's foreach_target); kernels/recurrence/recurrence_cpu.cc shows the required
// preprocessor lines.
//
// A Block is one 512-bit vector, two of 256, four of 128 or sixteen scalars: what a kernel computes
// in a lane, and the order in which lanes are summed, is the same on each. With fused multiply-add
// (AVX2, AVX-512, NEON) the bits are the same too. Targets without it give other bits,
// consistently.
//
// All functions are per lane except the two reductions, which use a fixed tree: lane i with lane
// i + 8, then i + 4, i + 2, i + 1.

// Highway's include guard for files that are included once per target.
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
inline constexpr size_t kVectorLanes = hn::MaxLanes(FloatTag());
inline constexpr size_t kVectors = 16 / kVectorLanes;

struct Block {
  FloatVector v[kVectors];
};

// Applies f to each vector of the blocks. Lambdas that handle vectors need HWY_ATTR: clang does not
// give them the target that the surrounding functions are compiled for.
template <typename F, typename... Blocks>
HWY_INLINE Block MapBlock(F&& f, const Blocks&... blocks) {
  Block result;
  for (size_t i = 0; i < kVectors; ++i) result.v[i] = f(blocks.v[i]...);
  return result;
}

HWY_INLINE Block SetBlock(float value) {
  Block result;
  for (size_t i = 0; i < kVectors; ++i) result.v[i] = hn::Set(FloatTag(), value);
  return result;
}
HWY_INLINE Block ZeroBlock() { return SetBlock(0.0f); }

// Unaligned access to aligned addresses is as fast as aligned access, so one load and one store do.
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
  return MapBlock([](auto x, auto y, auto z) HWY_ATTR { return hn::MulAdd(x, y, z); }, a, b, c);
}
HWY_INLINE Block Add(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) HWY_ATTR { return hn::Add(x, y); }, a, b);
}
HWY_INLINE Block Sub(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) HWY_ATTR { return hn::Sub(x, y); }, a, b);
}
HWY_INLINE Block Mul(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) HWY_ATTR { return hn::Mul(x, y); }, a, b);
}
HWY_INLINE Block Div(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) HWY_ATTR { return hn::Div(x, y); }, a, b);
}
HWY_INLINE Block Max(const Block& a, const Block& b) {
  return MapBlock([](auto x, auto y) HWY_ATTR { return hn::Max(x, y); }, a, b);
}
HWY_INLINE Block Exp(const Block& a) {
  return MapBlock([](auto x) HWY_ATTR { return hn::Exp(FloatTag(), x); }, a);
}
HWY_INLINE Block Log1p(const Block& a) {
  return MapBlock([](auto x) HWY_ATTR { return hn::Log1p(FloatTag(), x); }, a);
}

// The same tree inside one vector.
#if HWY_TARGET == HWY_SCALAR
template <class D, typename F>
HWY_INLINE float ReduceVector(D /*d*/, hn::Vec<D> v, F&& /*f*/) {
  return hn::GetLane(v);
}
#else
template <class D, typename F>
HWY_INLINE float ReduceVector(D d, hn::Vec<D> v, F&& f) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return ReduceVector(half, f(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), f);
  } else {
    (void)d;
    v = f(v, hn::Shuffle1032(v));
    return hn::GetLane(f(v, hn::Shuffle2301(v)));
  }
}
#endif

// Halves the block down the tree; the last four lanes meet by shuffles.
template <typename F>
HWY_INLINE float ReduceBlock(Block block, F&& f) {
  for (size_t width = kVectors / 2; width != 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) block.v[i] = f(block.v[i], block.v[i + width]);
  }
  return ReduceVector(FloatTag(), block.v[0], f);
}

HWY_INLINE float SumBlock(const Block& block) {
  return ReduceBlock(block, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}
HWY_INLINE float MaxBlock(const Block& block) {
  return ReduceBlock(block, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
}

// The first `count` (< 16) floats, the rest `fill`; and the store of as many. For remainders, so
// that they run the same code as whole blocks.
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

// Calls visit(first, count) for each block of [0, count): whole blocks have count 16, and the last
// one may have less (LoadPartial, StorePartial).
template <typename Visit>
HWY_INLINE void ForEachBlock(size_t count, Visit&& visit) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) visit(i, size_t{16});
  if (i < count) visit(i, count - i);
}

// Whole blocks go straight to memory; the branch is on a constant where ForEachBlock is unrolled.
HWY_INLINE Block LoadUpTo(const float* from, size_t count, float fill = 0.0f) {
  return count == 16 ? LoadBlock(from) : LoadPartial(from, count, fill);
}
HWY_INLINE void StoreUpTo(const Block& block, float* to, size_t count) {
  if (count == 16) return StoreBlock(block, to);
  StorePartial(block, to, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#endif  // RIVULET_KERNELS_BASE_SIMD_INL_H_
