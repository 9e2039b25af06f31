// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RWKV-7's recurrence from its definition, in fp64 and quadratic in the number of tokens:
//
//   o_t = Σ_{s<=t} (q_t A_t A_{t-1} ... A_{s+1} · k_s) v_s      x A_s = x ∘ e^{g_s} + (x · b_s) a_s
#ifndef RIVULET_KERNELS_MIXERS_RWKV7_RWKV7_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_RWKV7_RWKV7_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T · H · padded E], heads as the recurrence writes them.
std::vector<double> Rwkv7Reference(const HeadShape& shape, const TokenInputs& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RWKV7_RWKV7_REFERENCE_H_
