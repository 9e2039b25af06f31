// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_recurrence.h"

namespace rivulet {

RecurrenceDeclaration LogLinearGatedDeltaNetDeclaration(const HeadShape& shape, uint32_t levels) {
  return {.shape = shape,
          .sharing = Sharing::kQueriesAndKeys,
          .decay = {.kind = Decay::kScalar},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q"}},
          .delta = true,
          .levels = levels};
}

}  // namespace rivulet
