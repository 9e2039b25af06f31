// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Linear attention in fp64 from its definition, a sum over all earlier tokens for each token
// (docs/mixers.md#linear-attention). For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> LinearAttentionReference(const HeadShape& shape, const TokenInputs& input,
                                             bool normalised);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_REFERENCE_H_
