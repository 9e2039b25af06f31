// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The delta rule (docs/mixers.md#deltanet, #gated-deltanet): DeltaNet without decay, Gated DeltaNet
// with one decay a value head,
//
//   S̄ = e^{g_t} S_{t-1}    u_t = β_t (v_t - k_t S̄)    S_t = S̄ + k_tᵀ u_t    o_t = q_t S_t
//
// Value heads of a group (grouped value attention) share q and k; each has its own S, β and decay.
// q is scaled.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_RECURRENCE_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_RECURRENCE_H_

#include <cstddef>

#include "kernels/base/dtype.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct DeltaRuleShape {
  size_t key_heads = 0;    // Hk
  size_t value_heads = 0;  // Hv, a multiple of Hk
  size_t key_dim = 0;      // D <= kMaxKeyDim
  size_t value_dim = 0;    // E
  bool decays = false;
  DType state_dtype = DType::kFloat32;

  size_t group() const { return value_heads / key_heads; }
  size_t padded_key() const { return PaddedColumns(key_dim); }
  size_t padded_value() const { return PaddedColumns(value_dim); }
};

RecurrenceDeclaration DeltaRuleDeclaration(const DeltaRuleShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_RECURRENCE_H_
