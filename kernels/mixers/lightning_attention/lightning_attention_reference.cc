// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/lightning_attention/lightning_attention_reference.h"

#include <cmath>

namespace rivulet {
namespace {

// e^{g (t-s)} (q_t · k_s) for one head, whose columns begin at `column`.
double Weight(const TokenInputs& input, size_t column, size_t width, double log_decay, size_t t,
              size_t s) {
  const float *q = input.q.row(t) + column, *k = input.k.row(s) + column;
  double score = 0;
  for (size_t i = 0; i < width; ++i) score += double{q[i]} * k[i];
  return score * std::exp(log_decay * static_cast<double>(t - s));
}

}  // namespace

std::vector<double> LightningAttentionReference(const HeadShape& shape,
                                                const std::vector<double>& log_decay,
                                                const TokenInputs& input) {
  const size_t padded = shape.padded_value(), row = shape.heads * padded;
  std::vector<double> out(input.q.rows * row, 0.0);
  for (size_t h = 0; h < shape.heads; ++h) {
    for (size_t t = 0; t < input.q.rows; ++t) {
      for (size_t s = 0; s <= t; ++s) {
        const double weight = Weight(input, h * padded, shape.key_dim, log_decay[h], t, s);
        const float* v = input.v.row(s) + h * padded;
        for (size_t i = 0; i < shape.value_dim; ++i) out[t * row + h * padded + i] += weight * v[i];
      }
    }
  }
  return out;
}

}  // namespace rivulet
