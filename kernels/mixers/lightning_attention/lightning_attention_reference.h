// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Lightning attention in fp64 from its definition, a sum over all earlier tokens for each token.
// For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H*Dp]: what the recurrence gives for one session from position 0, zeros in the padding.
std::vector<double> LightningAttentionReference(const HeadShape& shape,
                                                const std::vector<double>& log_decay,
                                                const TokenInputs& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LIGHTNING_ATTENTION_LIGHTNING_ATTENTION_REFERENCE_H_
