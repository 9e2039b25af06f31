// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

// e^{g} of token s, value head `head` and key channel i.
double DecayOf(const HeadShape& shape, const TokenInputs& input, Decay decay, size_t s, size_t head,
               size_t i) {
  if (decay == Decay::kNone) return 1.0;
  const size_t column = decay == Decay::kChannel ? head * shape.padded_key() + i : head;
  return std::exp(double{input.decay.row(s)[column]});
}

// One value head. `query` is q_t A_t ... A_{s+1} when the walk back from t stands at s.
void OneHead(const HeadShape& shape, const TokenInputs& input, Decay decay, size_t head,
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
      const double beta = input.beta.row(s)[head];
      double score = 0;
      for (size_t i = 0; i < shape.key_dim; ++i) score += query[i] * k[i];
      for (size_t j = 0; j < shape.value_dim; ++j) o[j] += score * beta * v[j];
      for (size_t i = 0; i < shape.key_dim; ++i) {
        query[i] = DecayOf(shape, input, decay, s, head, i) * (query[i] - beta * score * k[i]);
      }
    }
  }
}

}  // namespace

std::vector<double> DeltaRuleReference(const HeadShape& shape, const TokenInputs& input,
                                       Decay decay) {
  std::vector<double> out(input.q.rows * shape.heads * shape.padded_value(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) OneHead(shape, input, decay, head, out);
  return out;
}

}  // namespace rivulet
