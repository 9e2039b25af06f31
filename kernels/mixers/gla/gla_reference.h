// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Gated linear attention in fp64 from its definition (docs/mixers.md#gla, "Quadratic"). For tests;
// quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_GLA_GLA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_GLA_GLA_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> GlaReference(const HeadShape& shape, const TokenInputs& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GLA_GLA_REFERENCE_H_
