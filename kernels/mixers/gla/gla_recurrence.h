// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Gated linear attention (Yang et al. 2024; docs/mixers.md#gla) as one sum with a decay for each
// key channel:
//
//   S_t = diag(e^{g_t}) S_{t-1} + k_tᵀ v_t        o_t = q_t S_t
//
// The gate of token t decays the old state only, never its own write. Query heads of a group share
// k, v and g. q is scaled.
#ifndef RIVULET_KERNELS_MIXERS_GLA_GLA_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_GLA_GLA_RECURRENCE_H_

#include "kernels/recurrence/declaration.h"

namespace rivulet {

RecurrenceDeclaration GlaDeclaration(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GLA_GLA_RECURRENCE_H_
