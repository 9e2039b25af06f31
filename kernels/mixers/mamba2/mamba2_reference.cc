// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/mamba2/mamba2_reference.h"

#include <cmath>

namespace rivulet {
namespace {

// y_t = Σ_{s<=t} (C_t·B_s) e^{A (Δ_{s+1} + ... + Δ_t)} Δ_s x_s + D ∘ x_t, one head and token.
void OneToken(const Mamba2Shape& shape, const Mamba2Constants& constants, const Mamba2Input& input,
              size_t head, size_t t, double* y) {
  const size_t group = shape.group_of(head), n = shape.padded_state();
  const float* c = input.c.row(t) + group * n;
  double log_decay = 0;
  for (size_t s = t + 1; s-- > 0;) {
    const float* b = input.b.row(s) + group * n;
    const float* x = input.x.row(s) + head * shape.head_dim;
    const double delta = input.delta.row(s)[head];
    double score = 0;
    for (size_t i = 0; i < shape.state_size; ++i) score += double{c[i]} * double{b[i]};
    const double weight = score * std::exp(log_decay) * delta;
    for (size_t j = 0; j < shape.head_dim; ++j) y[j] += weight * x[j];
    log_decay += constants.a[head] * delta;
  }
  const float* x = input.x.row(t) + head * shape.head_dim;
  for (size_t j = 0; j < shape.head_dim; ++j) {
    y[j] += double{constants.d[head * shape.head_dim + j]} * double{x[j]};
  }
}

}  // namespace

std::vector<double> Mamba2Reference(const Mamba2Shape& shape, const Mamba2Constants& constants,
                                    const Mamba2Input& input) {
  const size_t p = shape.padded_head();
  std::vector<double> y(input.x.rows * shape.heads * p, 0.0);
  for (size_t t = 0; t < input.x.rows; ++t) {
    for (size_t head = 0; head < shape.heads; ++head) {
      OneToken(shape, constants, input, head, t, &y[(t * shape.heads + head) * p]);
    }
  }
  return y;
}

}  // namespace rivulet
