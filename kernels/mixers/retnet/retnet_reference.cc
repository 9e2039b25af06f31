// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/retnet/retnet_reference.h"

#include <cmath>

namespace rivulet {
namespace {

// o_t = Σ_{s <= t} γ^{t-s} (q_t · k_s) v_s of one head.
void OneHead(const HeadShape& shape, const TokenInputs& input, size_t head,
             std::vector<double>& out) {
  const size_t d = shape.padded_key(), e = shape.padded_value();
  const size_t kv = head / shape.group();
  const double gamma = 1.0 - std::exp2(-5.0 - static_cast<double>(head));
  for (size_t t = 0; t < input.q.rows; ++t) {
    double* o = &out[t * shape.heads * e + head * e];
    const float* q = input.q.row(t) + head * d;
    for (size_t s = 0; s <= t; ++s) {
      const float* k = input.k.row(s) + kv * d;
      const float* v = input.v.row(s) + kv * e;
      double score = 0;
      for (size_t i = 0; i < shape.key_dim; ++i) score += double{q[i]} * k[i];
      score *= std::pow(gamma, static_cast<double>(t - s));
      for (size_t j = 0; j < shape.value_dim; ++j) o[j] += score * v[j];
    }
  }
}

}  // namespace

std::vector<double> RetNetReference(const HeadShape& shape, const TokenInputs& input) {
  std::vector<double> out(input.q.rows * shape.heads * shape.padded_value(), 0.0);
  for (size_t head = 0; head < shape.heads; ++head) OneHead(shape, input, head, out);
  return out;
}

}  // namespace rivulet
