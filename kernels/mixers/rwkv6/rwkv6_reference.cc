// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/rwkv6/rwkv6_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

// One head. When the walk back from t stands at s < t, `query` is q_t times the decays of the
// tokens s+1 ... t-1: a token's own decay comes after its read.
void OneHead(const HeadShape& shape, const TokenInputs& input, size_t head,
             std::vector<double>& out) {
  const size_t d = shape.padded_key(), e = shape.padded_value();
  std::vector<double> query(shape.key_dim);
  for (size_t t = 0; t < input.q.rows; ++t) {
    double* o = &out[t * shape.heads * e + head * e];
    std::copy_n(input.q.row(t) + head * d, shape.key_dim, query.begin());
    for (size_t s = t; s-- > 0;) {
      const float* k = input.k.row(s) + head * d;
      const float* v = input.v.row(s) + head * e;
      const float* g = input.decay.row(s) + head * d;
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

std::vector<double> Rwkv6Reference(const HeadShape& shape, const TokenInputs& input) {
  std::vector<double> out(input.q.rows * shape.heads * shape.padded_value(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) OneHead(shape, input, head, out);
  return out;
}

}  // namespace rivulet
