// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Mamba's selective state space in fp64 from its quadratic form (docs/mixers.md#mamba). For tests;
// quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_REFERENCE_H_

#include <vector>

#include "kernels/mixers/mamba/mamba_recurrence.h"

namespace rivulet {

// [T * I]: what Run writes for one session from position 0.
std::vector<double> MambaReference(const MambaShape& shape, const MambaConstants& constants,
                                   const MambaInput& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_REFERENCE_H_
