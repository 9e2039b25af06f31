// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gla/gla_recurrence.h"

namespace rivulet {

RecurrenceDeclaration GlaDeclaration(const HeadShape& shape) {
  return {.shape = shape,
          .decay = {.kind = Decay::kChannel},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q"}}};
}

}  // namespace rivulet
