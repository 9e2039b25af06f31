// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The choice of pools in fp64, from the definition. For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/mixers/pool_selection/pool_selection_recurrence.h"

namespace rivulet {

// What the tests multiply a pool's plain mean by, by the position where it begins.
inline float PoolFactor(uint64_t position) { return position % 3 == 0 ? 2.0f : 0.5f; }

// What PoolSelectionRecurrence::Run writes, [T · (1 + K)] for one session from position 0.
std::vector<double> PoolSelectionReference(const PoolSelectionConfig& config, const float* ape,
                                           const PoolSelectionInput& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SELECTION_REFERENCE_H_
