// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule with a decay by channel in fp64 as a sum over pairs of tokens
// (docs/mixers.md#kda). For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_KDA_KDA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_KDA_KDA_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H·Ep]: o for one session from position 0, zeros in the padding of each head.
std::vector<double> KdaReference(const HeadShape& shape, const TokenInputs& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_KDA_KDA_REFERENCE_H_
