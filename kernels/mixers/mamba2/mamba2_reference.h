// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba-2's recurrence in fp64 from its quadratic form (docs/mixers.md#mamba-2). For tests;
// quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_REFERENCE_H_

#include <vector>

#include "kernels/mixers/mamba2/mamba2_config.h"

namespace rivulet {

// [T * H*Pp]: what the recurrence gives for one session from position 0, zeros in the padding.
std::vector<double> Mamba2Reference(const HeadShape& shape, const Mamba2Constants& constants,
                                    const TokenInputs& inputs);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_REFERENCE_H_
