// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Retention in fp64 from its definition, a sum over all earlier tokens for each token. For tests;
// quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_RETNET_RETNET_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_RETNET_RETNET_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> RetNetReference(const HeadShape& shape, const TokenInputs& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RETNET_RETNET_REFERENCE_H_
