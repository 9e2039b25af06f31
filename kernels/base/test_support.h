// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of the kernels: random inputs, comparison with an fp64 reference, and running
// the same code on each SIMD target of this machine.
#ifndef RIVULET_KERNELS_BASE_TEST_SUPPORT_H_
#define RIVULET_KERNELS_BASE_TEST_SUPPORT_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/test_seed.h"
#include "kernels/base/worst_difference.h"

namespace rivulet {

inline std::vector<float> RandomFloats(size_t count, std::mt19937_64& random, float scale = 1.0f) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Rows of floats in owned memory, `misalignment` floats off a cache line, with `gap` canary floats
// between rows.
class TestMatrix {
 public:
  static constexpr float kCanary = -12345.75f;

  TestMatrix(size_t rows, size_t columns, size_t misalignment = 0, size_t gap = 0)
      : memory_((rows + 1) * (columns + gap) + misalignment + 32, kCanary) {
    auto address = reinterpret_cast<uintptr_t>(memory_.data());
    const size_t skip = (64 - address % 64) % 64 / sizeof(float) + misalignment;
    view_ = {memory_.data() + skip, rows, columns, columns + gap};
  }
  TestMatrix(const TestMatrix&) = delete;

  void Fill(std::span<const float> values) {
    for (size_t r = 0; r < view_.rows; ++r) {
      std::copy_n(values.data() + r * view_.columns, view_.columns, view_.row(r));
    }
  }
  FloatMatrix view() const { return view_; }
  std::vector<float> Values() const {
    std::vector<float> values;
    for (size_t r = 0; r < view_.rows; ++r) {
      values.insert(values.end(), view_.row(r), view_.row(r) + view_.columns);
    }
    return values;
  }
  // Whether everything outside of the rows' columns is unchanged.
  bool CanariesAlive() const {
    const size_t outside = memory_.size() - view_.rows * view_.columns;
    return static_cast<size_t>(std::count(memory_.begin(), memory_.end(), kCanary)) >= outside;
  }

 private:
  std::vector<float> memory_;
  FloatMatrix view_;
};

inline uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// The largest distance of two numbers, as a part of the wanted one where that is above 1; infinite
// where there are more of one than of the other.
inline double Distance(std::span<const float> got, std::span<const float> wanted) {
  double worst = got.size() == wanted.size() ? 0 : INFINITY;
  for (size_t i = 0; i < got.size() && i < wanted.size(); ++i) {
    const double scale = std::max(1.0, std::abs(double{wanted[i]}));
    worst = WorstDifference(worst, got[i] / scale, wanted[i] / scale);
  }
  return worst;
}

inline testing::AssertionResult SameBits(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << " and " << b.size();
  for (size_t i = 0; i < a.size(); ++i) {
    if (Bits(a[i]) == Bits(b[i])) continue;
    return testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
  }
  return testing::AssertionSuccess();
}

// max|Δ| <= tolerance · max(max|reference|, typical). `typical` is the size of the results where
// they may all happen to cancel.
inline testing::AssertionResult Close(std::span<const float> actual,
                                      std::span<const double> reference, double tolerance,
                                      double typical = 0.0) {
  double largest = typical, worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    largest = std::max(largest, std::abs(reference[i]));
    const double so_far = WorstDifference(worst, actual[i], reference[i]);
    if (so_far > worst) worst = so_far, where = i;
  }
  if (actual.size() == reference.size() && std::isfinite(worst) && worst <= tolerance * largest) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure()
         << "at " << where << " of " << actual.size() << "/" << reference.size() << ": off by "
         << worst << ", largest reference " << largest;
}

// Calls test(name) with the kernels held to each target that has fused multiply-add on this
// machine: those whose bits are promised to be equal.
template <typename Test>
void ForEachFusedTarget(Test&& test) {
  const int64_t supported = hwy::SupportedTargets();
  for (const int64_t target : {HWY_AVX3, HWY_AVX2, HWY_NEON}) {
    if ((supported & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    test(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

// The same on the portable fallback, whose bits may differ.
template <typename Test>
void OnBaselineTarget(Test&& test) {
  hwy::SetSupportedTargetsForTest(HWY_STATIC_TARGET);
  hwy::GetChosenTarget().DeInit();
  test();
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_TEST_SUPPORT_H_
