// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Linear attention (Katharopoulos et al. 2020; docs/mixers.md#linear-attention) as one sum without
// decay:
//
//   S_t = S_{t-1} + φk_tᵀ v_t     z_t = z_{t-1} + φk_t
//   o_t = φq_t S_t                normalised: o_t = φq_t S_t / (φq_t·z_t + 1e-10)
//
// Query heads of a group share k and v. q and k are features φ(·) already, and q is scaled.
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_RECURRENCE_H_

#include "kernels/recurrence/declaration.h"

namespace rivulet {

RecurrenceDeclaration LinearAttentionDeclaration(const HeadShape& shape, bool normalised);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_RECURRENCE_H_
