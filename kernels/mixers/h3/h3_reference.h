// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// H3's two SSMs in fp64 as convolutions with their kernels (docs/mixers.md#h3). For tests;
// quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_REFERENCE_H_

#include <vector>

#include "kernels/mixers/h3/h3_recurrence.h"

namespace rivulet {

// [T * hd·Hp]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> H3Reference(const H3Shape& shape, const H3Constants& constants,
                                const H3Input& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_REFERENCE_H_
