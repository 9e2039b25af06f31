// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule in fp64 from its transitions (docs/mixers.md#deltanet, #gated-deltanet, #kda):
// with A_r = (I - β_r k_rᵀk_r) diag(e^{g_r}), where g_r is none, one number a head, or one a key
// channel,
//
//   o_t = Σ_{s<=t} q_t A_t A_{t-1} ... A_{s+1} k_sᵀ β_s v_s
//
// No state, no triangle, no chunk: each query walks back over the tokens before it. For tests;
// quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_REFERENCE_H_

#include <vector>

#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"

namespace rivulet {

// [T * Hv*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> DeltaRuleReference(const HeadShape& shape, const TokenInputs& input,
                                       Decay decay);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_REFERENCE_H_
