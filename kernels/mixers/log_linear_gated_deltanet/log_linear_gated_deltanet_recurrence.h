// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Log-linear Gated DeltaNet's recurrence (docs/mixers.md#log-linear-gated-deltanet): Gated
// DeltaNet's with every term of the read weighted by its distance,
//
//   o_t = Σ_{s<=t} λ_t[ℓ(t, s)] (q_t A_t A_{t-1} ... A_{s+1} k_sᵀ) β_s v_s
//   A_r = e^{g_r} (I - β_r k_rᵀk_r)
//
// over the pages of kernels/recurrence/fenwick.h, delta form. Each head has its own q, k and v.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_RECURRENCE_H_

#include <cstdint>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// REQUIRES: shape has as many groups as heads.
RecurrenceDeclaration LogLinearGatedDeltaNetDeclaration(const HeadShape& shape, uint32_t levels);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_RECURRENCE_H_
