// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"

namespace rivulet {

RecurrenceDeclaration DeltaRuleDeclaration(const DeltaRuleShape& shape) {
  return {.shape = {shape.value_heads, shape.key_heads, shape.key_dim, shape.value_dim,
                    shape.state_dtype},
          .sharing = Sharing::kQueriesAndKeys,
          .decay = {.kind = shape.decays ? Decay::kScalar : Decay::kNone},
          .rows = {{"k", shape.key_dim, {"k"}}, {"u", shape.value_dim}},
          .sums = {{"S", "k", "u"}},
          .reads = {{"o", "S", "q"}},
          .delta = true};
}

}  // namespace rivulet
