// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Gated DeltaNet's recurrence in fp64 from its transitions
// (docs/mixers.md#log-linear-gated-deltanet): each query walks back over the tokens before it, no
// state, no triangle, no chunk. For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> LogLinearGatedDeltaNetReference(const HeadShape& shape, uint32_t levels,
                                                    const TokenInputs& input);

// [H*Ep]: row t of it, for inputs whose rows are repeated without end.
std::vector<double> LogLinearGatedDeltaNetReferenceAt(const HeadShape& shape, uint32_t levels,
                                                      const TokenInputs& input, uint64_t t);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_REFERENCE_H_
