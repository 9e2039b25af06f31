// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Multi-scale retention (Sun et al. 2023; docs/mixers.md#retnet) as one sum with a constant decay
// for each head:
//
//   S_t = γ_h S_{t-1} + k_tᵀ v_t        o_t = q_t S_t        γ_h = 1 - 2^{-5-h}, h from 0
//
// Query heads of a group share k and v, but each has its own γ and so its own S. q and k are
// rotated already, and q is scaled.
#ifndef RIVULET_KERNELS_MIXERS_RETNET_RETNET_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_RETNET_RETNET_RECURRENCE_H_

#include <cstddef>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// log γ of a head. 1 - 2^{-5-h} is rounded to fp32 before the logarithm, as fla has it: from the
// 21st head on it is 1, and nothing decays.
double RetentionLogDecay(size_t head);

RecurrenceDeclaration RetNetDeclaration(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RETNET_RETNET_RECURRENCE_H_
