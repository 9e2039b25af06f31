// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/kda/kda_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

// o_t = Σ_{s<=t} (q_t A_t ... A_{s+1} k_sᵀ) β_s v_s with A_r = (I - β_r k_rᵀk_r) diag(e^{g_r}), one
// value head. `query` is q_t A_t ... A_{s+1} when the walk back from t stands at s.
void OneHead(const HeadShape& shape, const TokenInputs& input, size_t head,
             std::vector<double>& out) {
  const size_t d = shape.padded_key(), e = shape.padded_value();
  const size_t key_column = head / shape.group() * d;
  std::vector<double> query(shape.key_dim);
  for (size_t t = 0; t < input.q.rows; ++t) {
    double* o = &out[t * shape.heads * e + head * e];
    std::copy_n(input.q.row(t) + key_column, shape.key_dim, query.begin());
    for (size_t s = t + 1; s-- > 0;) {
      const float* k = input.k.row(s) + key_column;
      const float* v = input.v.row(s) + head * e;
      const float* g = input.decay.row(s) + head * d;
      const double beta = input.beta.row(s)[head];
      double score = 0;
      for (size_t i = 0; i < shape.key_dim; ++i) score += query[i] * k[i];
      for (size_t j = 0; j < shape.value_dim; ++j) o[j] += score * beta * v[j];
      for (size_t i = 0; i < shape.key_dim; ++i) {
        query[i] = std::exp(double{g[i]}) * (query[i] - beta * score * k[i]);
      }
    }
  }
}

}  // namespace

std::vector<double> KdaReference(const HeadShape& shape, const TokenInputs& input) {
  std::vector<double> out(input.q.rows * shape.heads * shape.padded_value(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) OneHead(shape, input, head, out);
  return out;
}

}  // namespace rivulet
