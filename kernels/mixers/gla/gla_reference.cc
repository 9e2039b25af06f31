// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gla/gla_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

// One head. For each token t, walking s back from t, `query` holds q_t e^{B_t - B_s}: the product
// of the decays of tokens s+1 ... t, so that nothing is divided and no exponential is of a
// difference.
void OneHead(const HeadShape& shape, const TokenInputs& input, size_t head,
             std::vector<double>& out) {
  const size_t d = shape.padded_key(), e = shape.padded_value();
  const size_t kv = head / shape.group();
  std::vector<double> query(shape.key_dim);
  for (size_t t = 0; t < input.q.rows; ++t) {
    double* o = &out[t * shape.heads * e + head * e];
    std::copy_n(input.q.row(t) + head * d, shape.key_dim, query.begin());
    for (size_t s = t + 1; s-- > 0;) {
      const float* k = input.k.row(s) + kv * d;
      const float* v = input.v.row(s) + kv * e;
      const float* g = input.decay.row(s) + kv * d;
      double score = 0;
      for (size_t i = 0; i < shape.key_dim; ++i) {
        score += query[i] * k[i];
        query[i] *= std::exp(double{g[i]});
      }
      for (size_t j = 0; j < shape.value_dim; ++j) o[j] += score * v[j];
    }
  }
}

}  // namespace

std::vector<double> GlaReference(const HeadShape& shape, const TokenInputs& input) {
  std::vector<double> out(input.q.rows * shape.heads * shape.padded_value(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) OneHead(shape, input, head, out);
  return out;
}

}  // namespace rivulet
