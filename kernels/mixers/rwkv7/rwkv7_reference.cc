// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rwkv7/rwkv7_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

double Product(const std::vector<double>& x, const float* y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// One head. `query` is q_t A_t ... A_{s+1} when the walk back from t stands at s.
void OneHead(const HeadShape& shape, const TokenInputs& input, size_t head,
             std::vector<double>& out) {
  const size_t e = shape.padded_value(), column = head * shape.padded_key();
  std::vector<double> query(shape.key_dim);
  for (size_t t = 0; t < input.q.rows; ++t) {
    double* o = &out[t * shape.heads * e + head * e];
    std::copy_n(input.q.row(t) + column, shape.key_dim, query.begin());
    for (size_t s = t + 1; s-- > 0;) {
      const double score = Product(query, input.k.row(s) + column);
      const float* v = input.v.row(s) + head * e;
      for (size_t j = 0; j < shape.value_dim; ++j) o[j] += score * v[j];
      const double removed = Product(query, input.b.row(s) + column);
      for (size_t i = 0; i < shape.key_dim; ++i) {
        query[i] = query[i] * std::exp(double{input.decay.row(s)[column + i]}) +
                   removed * input.a.row(s)[column + i];
      }
    }
  }
}

}  // namespace

std::vector<double> Rwkv7Reference(const HeadShape& shape, const TokenInputs& input) {
  std::vector<double> out(input.q.rows * shape.heads * shape.padded_value(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) OneHead(shape, input, head, out);
  return out;
}

}  // namespace rivulet
