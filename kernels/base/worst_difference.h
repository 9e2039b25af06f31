// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// For tests that compare many numbers and keep the largest difference. std::max will not do: it
// drops a NaN, and a test of NaNs would pass.
#ifndef RIVULET_KERNELS_BASE_WORST_DIFFERENCE_H_
#define RIVULET_KERNELS_BASE_WORST_DIFFERENCE_H_

#include <algorithm>
#include <cmath>

namespace rivulet {

// The larger of `worst`, the largest so far, and |a - b|; infinite from the first NaN on.
inline double WorstDifference(double worst, double a, double b) {
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? INFINITY : std::max(worst, difference);
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_WORST_DIFFERENCE_H_
