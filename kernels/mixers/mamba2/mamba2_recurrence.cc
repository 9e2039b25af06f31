// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_recurrence.h"

namespace rivulet {

RecurrenceDeclaration Mamba2Declaration(const HeadShape& shape, const Mamba2Constants& constants) {
  return {.shape = shape,
          .sharing = Sharing::kQueriesAndKeys,
          .decay = {.kind = Decay::kScalar, .rate = constants.a},
          .rows = {{"B", shape.key_dim, {"k"}},
                   {.name = "v", .width = shape.value_dim, .copies = {"v"}, .times_step = true}},
          .sums = {{"S", "B", "v"}},
          .reads = {{"o", "S", "q"}},
          .skip = constants.d};
}

}  // namespace rivulet
