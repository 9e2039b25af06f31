// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rivulet {
namespace {

double Score(const HeadShape& shape, const float* c, const float* b) {
  double score = 0;
  for (size_t i = 0; i < shape.key_dim; ++i) score += double{c[i]} * double{b[i]};
  return score;
}

// One head and token: every earlier token on its own, under the weight of its level.
void OneToken(const HeadShape& shape, uint32_t levels, const Mamba2Constants& constants,
              const TokenInputs& input, size_t head, uint64_t t, double* y) {
  const size_t p = shape.value_dim, rows = input.v.rows;
  const float* c = input.q.row(t % rows);
  const float* lambda = input.levels.row(t % rows) + head * levels;
  double log_decay = 0;
  for (uint64_t s = t + 1; s-- > 0;) {
    const double delta = input.decay.row(s % rows)[head];
    const size_t level = std::min<size_t>(std::bit_width(t ^ s), levels - 1);
    const double score = Score(shape, c, input.k.row(s % rows));
    const double weight = lambda[level] * score * std::exp(log_decay) * delta;
    const float* x = input.v.row(s % rows) + head * p;
    for (size_t j = 0; j < p; ++j) y[j] += weight * x[j];
    log_decay += constants.a[head] * delta;
  }
  const float* x = input.v.row(t % rows) + head * p;
  for (size_t j = 0; j < p; ++j) y[j] += double{constants.d[head * p + j]} * double{x[j]};
}

}  // namespace

std::vector<double> LogLinearMamba2ReferenceAt(const HeadShape& shape, uint32_t levels,
                                               const Mamba2Constants& constants,
                                               const TokenInputs& input, uint64_t t) {
  const size_t padded = shape.padded_value();
  std::vector<double> y(shape.heads * padded, 0.0);
  for (size_t head = 0; head < shape.heads; ++head) {
    OneToken(shape, levels, constants, input, head, t, &y[head * padded]);
  }
  return y;
}

std::vector<double> LogLinearMamba2Reference(const HeadShape& shape, uint32_t levels,
                                             const Mamba2Constants& constants,
                                             const TokenInputs& input) {
  std::vector<double> y;
  for (size_t t = 0; t < input.v.rows; ++t) {
    const auto row = LogLinearMamba2ReferenceAt(shape, levels, constants, input, t);
    y.insert(y.end(), row.begin(), row.end());
  }
  return y;
}

}  // namespace rivulet
