// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_reference.h"

#include <cmath>

namespace rivulet {
namespace {

// y_t = Σ_{s<=t} (C_t·B_s) e^{A (Δ_{s+1} + ... + Δ_t)} Δ_s x_s + D ∘ x_t, one head and token.
void OneToken(const HeadShape& shape, const Mamba2Constants& constants, const TokenInputs& input,
              size_t head, size_t t, double* y) {
  const size_t group = head / shape.group(), n = shape.padded_key();
  const float* c = input.q.row(t) + group * n;
  double log_decay = 0;
  for (size_t s = t + 1; s-- > 0;) {
    const float* b = input.k.row(s) + group * n;
    const float* x = input.v.row(s) + head * shape.value_dim;
    const double delta = input.decay.row(s)[head];
    double score = 0;
    for (size_t i = 0; i < shape.key_dim; ++i) score += double{c[i]} * double{b[i]};
    const double weight = score * std::exp(log_decay) * delta;
    for (size_t j = 0; j < shape.value_dim; ++j) y[j] += weight * x[j];
    log_decay += constants.a[head] * delta;
  }
  const float* x = input.v.row(t) + head * shape.value_dim;
  for (size_t j = 0; j < shape.value_dim; ++j) {
    y[j] += double{constants.d[head * shape.value_dim + j]} * double{x[j]};
  }
}

}  // namespace

std::vector<double> Mamba2Reference(const HeadShape& shape, const Mamba2Constants& constants,
                                    const TokenInputs& input) {
  const size_t p = shape.padded_value();
  std::vector<double> y(input.v.rows * shape.heads * p, 0.0);
  for (size_t t = 0; t < input.v.rows; ++t) {
    for (size_t head = 0; head < shape.heads; ++head) {
      OneToken(shape, constants, input, head, t, &y[(t * shape.heads + head) * p]);
    }
  }
  return y;
}

}  // namespace rivulet
