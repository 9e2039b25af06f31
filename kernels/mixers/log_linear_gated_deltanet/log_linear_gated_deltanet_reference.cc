// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rivulet {
namespace {

// One head and token. `query` is q_t A_t ... A_{s+1} when the walk back from t stands at s.
void OneToken(const HeadShape& shape, uint32_t levels, const TokenInputs& input, size_t head,
              uint64_t t, double* out) {
  const size_t d = shape.padded_key(), e = shape.padded_value(), rows = input.q.rows;
  const float* q = input.q.row(t % rows) + head * d;
  const float* lambda = input.levels.row(t % rows) + head * levels;
  std::vector<double> query(q, q + shape.key_dim);
  for (uint64_t s = t + 1; s-- > 0;) {
    const size_t row = s % rows;
    const float* k = input.k.row(row) + head * d;
    const float* v = input.v.row(row) + head * e;
    const double beta = input.beta.row(row)[head];
    const double decay = std::exp(double{input.decay.row(row)[head]});
    double score = 0;
    for (size_t i = 0; i < shape.key_dim; ++i) score += query[i] * k[i];
    const size_t level = std::min<size_t>(std::bit_width(t ^ s), levels - 1);
    for (size_t j = 0; j < shape.value_dim; ++j) out[j] += lambda[level] * score * beta * v[j];
    for (size_t i = 0; i < shape.key_dim; ++i) query[i] = decay * (query[i] - beta * score * k[i]);
  }
}

}  // namespace

std::vector<double> LogLinearGatedDeltaNetReferenceAt(const HeadShape& shape, uint32_t levels,
                                                      const TokenInputs& input, uint64_t t) {
  const size_t e = shape.padded_value();
  std::vector<double> out(shape.heads * e, 0.0);
  for (size_t head = 0; head < shape.heads; ++head) {
    OneToken(shape, levels, input, head, t, &out[head * e]);
  }
  return out;
}

std::vector<double> LogLinearGatedDeltaNetReference(const HeadShape& shape, uint32_t levels,
                                                    const TokenInputs& input) {
  std::vector<double> out;
  for (size_t t = 0; t < input.q.rows; ++t) {
    const auto row = LogLinearGatedDeltaNetReferenceAt(shape, levels, input, t);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace rivulet
