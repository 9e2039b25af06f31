// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/linear_attention/linear_attention_reference.h"

namespace rivulet {

std::vector<double> LinearAttentionReference(const HeadShape& shape, const TokenInputs& input,
                                             bool normalised) {
  const size_t r = shape.padded_key(), e = shape.padded_value();
  const size_t tokens = input.q.rows, columns = shape.heads * e;
  std::vector<double> out(tokens * columns, 0.0);
  for (size_t h = 0; h < shape.heads; ++h) {
    const size_t kv = h / shape.group();
    for (size_t t = 0; t < tokens; ++t) {
      double* o = &out[t * columns + h * e];
      double denominator = 1e-10;
      for (size_t s = 0; s <= t; ++s) {
        const float* q = input.q.row(t) + h * r;
        const float* k = input.k.row(s) + kv * r;
        double score = 0;
        for (size_t i = 0; i < shape.key_dim; ++i) score += double{q[i]} * double{k[i]};
        denominator += score;
        const float* v = input.v.row(s) + kv * e;
        for (size_t j = 0; j < shape.value_dim; ++j) o[j] += score * v[j];
      }
      if (!normalised) continue;
      for (size_t j = 0; j < shape.value_dim; ++j) o[j] /= denominator;
    }
  }
  return out;
}

}  // namespace rivulet
