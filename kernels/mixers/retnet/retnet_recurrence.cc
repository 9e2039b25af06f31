// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/retnet/retnet_recurrence.h"

#include <cmath>
#include <vector>

namespace rivulet {

double RetentionLogDecay(size_t head) {
  const float gamma = 1.0f - std::exp2(-5.0f - static_cast<float>(head));
  return std::log(static_cast<double>(gamma));
}

RecurrenceDeclaration RetNetDeclaration(const HeadShape& shape) {
  std::vector<double> log_gamma;
  for (size_t head = 0; head < shape.heads; ++head) log_gamma.push_back(RetentionLogDecay(head));
  return {.shape = shape,
          .decay = {.kind = Decay::kScalar, .constant = log_gamma},
          .rows = {{"k", shape.key_dim, {"k"}}, {"v", shape.value_dim, {"v"}}},
          .sums = {{"S", "k", "v"}},
          .reads = {{"o", "S", "q"}}};
}

}  // namespace rivulet
