// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Mamba-2's recurrence (docs/mixers.md#log-linear-mamba-2): Mamba-2's with every term of
// the read weighted by its distance,
//
//   y_t = Σ_{s<=t} λ_t[ℓ(t, s)] (C_t·B_s) e^{A (Δ_{s+1} + ... + Δ_t)} Δ_s x_s + D ∘ x_t
//
// over the pages of kernels/recurrence/fenwick.h. One group.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_RECURRENCE_H_

#include <cstdint>

#include "kernels/mixers/mamba2/mamba2_recurrence.h"

namespace rivulet {

// REQUIRES: shape.groups is 1.
RecurrenceDeclaration LogLinearMamba2Declaration(const HeadShape& shape, uint32_t levels,
                                                 const Mamba2Constants& constants);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_RECURRENCE_H_
