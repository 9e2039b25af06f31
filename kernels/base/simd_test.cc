// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// kernels/base/simd-inl.h on each target of this machine.
#include <algorithm>

#include "kernels/base/dtype.h"
#include "kernels/base/test_support.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/base/simd_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "kernels/base/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rivulet {
namespace HWY_NAMESPACE {

float TestSum(const float* x) { return SumBlock(LoadBlock(x)); }
float TestMax(const float* x) { return MaxBlock(LoadBlock(x)); }
void TestMulAdd(const float* x, const float* y, const float* z, float* out) {
  StoreBlock(MulAdd(LoadBlock(x), LoadBlock(y), LoadBlock(z)), out);
}
void TestWiden(const uint16_t* x, float* out) { StoreBlock(LoadBlock(x), out); }
void TestNarrow(const float* x, uint16_t* out) { StoreBlock(LoadBlock(x), out); }
void TestExp(const float* x, float* out) { StoreBlock(Exp(LoadBlock(x)), out); }
void TestLog1p(const float* x, float* out) { StoreBlock(Log1p(LoadBlock(x)), out); }
void TestCopy(const float* x, float* out, size_t count) {
  ForEachBlock(count,
               [=](size_t i, size_t n) HWY_ATTR { StoreUpTo(LoadUpTo(x + i, n), out + i, n); });
}
float TestPartialSum(const float* x, size_t count, float fill) {
  return SumBlock(LoadPartial(x, count, fill));
}

}  // namespace HWY_NAMESPACE
}  // namespace rivulet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rivulet {

HWY_EXPORT(TestSum);
HWY_EXPORT(TestMax);
HWY_EXPORT(TestMulAdd);
HWY_EXPORT(TestWiden);
HWY_EXPORT(TestNarrow);
HWY_EXPORT(TestExp);
HWY_EXPORT(TestLog1p);
HWY_EXPORT(TestCopy);
HWY_EXPORT(TestPartialSum);

namespace {

// The order that the header promises: lane i with lane i + 8, then i + 4, i + 2, i + 1.
float TreeSum(std::span<const float> x) {
  float lane[16];
  std::copy_n(x.data(), 16, lane);
  for (size_t width = 8; width != 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

TEST(SimdTest, ReductionsFollowTheTree) {
  std::mt19937_64 random(TestSeed());
  ForEachFusedTarget([&](const char* target) {
    for (int round = 0; round < 200; ++round) {
      const std::vector<float> x = RandomFloats(16, random);
      EXPECT_EQ(Bits(HWY_DYNAMIC_DISPATCH(TestSum)(x.data())), Bits(TreeSum(x))) << target;
      EXPECT_EQ(HWY_DYNAMIC_DISPATCH(TestMax)(x.data()), *std::max_element(x.begin(), x.end()));
    }
  });
}

TEST(SimdTest, MulAddRoundsOnce) {
  std::mt19937_64 random(TestSeed());
  ForEachFusedTarget([&](const char* target) {
    const std::vector<float> x = RandomFloats(16, random), y = RandomFloats(16, random),
                             z = RandomFloats(16, random);
    std::vector<float> out(16);
    HWY_DYNAMIC_DISPATCH(TestMulAdd)(x.data(), y.data(), z.data(), out.data());
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(Bits(out[i]), Bits(std::fma(x[i], y[i], z[i]))) << target;
    }
  });
}

TEST(SimdTest, BFloat16WidensExactlyAndNarrowsAsDTypeDoes) {
  std::mt19937_64 random(TestSeed());
  ForEachFusedTarget([&](const char* target) {
    const std::vector<float> x = RandomFloats(16, random, 1e10f);
    std::vector<uint16_t> narrow(16);
    std::vector<float> wide(16);
    HWY_DYNAMIC_DISPATCH(TestNarrow)(x.data(), narrow.data());
    HWY_DYNAMIC_DISPATCH(TestWiden)(narrow.data(), wide.data());
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(narrow[i], FloatToBFloat16(x[i])) << target;
      EXPECT_EQ(Bits(wide[i]), Bits(BFloat16ToFloat(narrow[i]))) << target;
    }
  });
}

// Decays: e^x for x <= 0, and log(1 + x) of probabilities.
TEST(SimdTest, ExpAndLog1pAreWithinTwoUnitsWithTheSameBitsEverywhere) {
  std::vector<float> x(16), first;
  for (size_t i = 0; i < 16; ++i) x[i] = -0.83f * static_cast<float>(i);
  ForEachFusedTarget([&](const char* target) {
    std::vector<float> out(32);
    HWY_DYNAMIC_DISPATCH(TestExp)(x.data(), out.data());
    HWY_DYNAMIC_DISPATCH(TestLog1p)(out.data(), out.data() + 16);
    for (size_t i = 0; i < 16; ++i) {
      EXPECT_NEAR(out[i], std::exp(double{x[i]}), 2.4e-7 * std::exp(double{x[i]})) << target;
      EXPECT_NEAR(out[16 + i], std::log1p(double{out[i]}), 2.4e-7 * std::log1p(double{out[i]}));
    }
    if (first.empty()) first = out;
    EXPECT_TRUE(SameBits(out, first)) << target;
  });
}

TEST(SimdTest, PartialBlocksTouchNothingElse) {
  std::mt19937_64 random(TestSeed());
  ForEachFusedTarget([&](const char* target) {
    for (size_t count = 0; count < 50; ++count) {
      const std::vector<float> x = RandomFloats(count, random);
      TestMatrix out(1, count, 1);
      HWY_DYNAMIC_DISPATCH(TestCopy)(x.data(), out.view().data, count);
      EXPECT_TRUE(SameBits(out.Values(), x)) << target;
      EXPECT_TRUE(out.CanariesAlive());
    }
    const std::vector<float> ones(16, 1.0f);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(TestPartialSum)(ones.data(), 3, 0.0f), 3.0f);
    EXPECT_EQ(HWY_DYNAMIC_DISPATCH(TestPartialSum)(ones.data(), 3, 2.0f), 29.0f);
  });
}

}  // namespace
}  // namespace rivulet
#endif  // HWY_ONCE
