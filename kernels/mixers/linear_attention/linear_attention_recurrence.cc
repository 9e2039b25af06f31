// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/linear_attention_recurrence.h"

namespace rivulet {

RecurrenceDeclaration LinearAttentionDeclaration(const HeadShape& shape, bool normalised) {
  return {.shape = shape,
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{.name = "S", .key = "k", .value = "v", .normaliser = normalised}},
          .reads = {{"o", "S", "q"}},
          .division = normalised ? Division::kReciprocal : Division::kNone,
          .denominator_eps = 1e-10f};
}

}  // namespace rivulet
