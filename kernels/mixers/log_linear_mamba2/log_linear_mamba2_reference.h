// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Mamba-2's recurrence in fp64 from its quadratic form
// (docs/mixers.md#log-linear-mamba-2). For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/mixers/mamba2/mamba2_config.h"

namespace rivulet {

// [T * H*Pp]: what the recurrence gives for one session from position 0, zeros in the padding.
std::vector<double> LogLinearMamba2Reference(const HeadShape& shape, uint32_t levels,
                                             const Mamba2Constants& constants,
                                             const TokenInputs& inputs);

// [H*Pp]: row t of it, for inputs whose rows are repeated without end.
std::vector<double> LogLinearMamba2ReferenceAt(const HeadShape& shape, uint32_t levels,
                                               const Mamba2Constants& constants,
                                               const TokenInputs& inputs, uint64_t t);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_REFERENCE_H_
