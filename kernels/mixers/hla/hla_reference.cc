// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/hla_reference.h"

#include <cmath>

namespace rivulet {
namespace {

using Matrix = std::vector<double>;  // [T, T], row-major

// [T, T] of all a_s · b_t.
Matrix Products(const std::vector<double>& a, const std::vector<double>& b, size_t tokens,
                size_t dim) {
  Matrix result(tokens * tokens);
  for (size_t s = 0; s < tokens; ++s) {
    for (size_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < dim; ++i) result[s * tokens + t] += a[s * dim + i] * b[t * dim + i];
    }
  }
  return result;
}

// The weight of the pair (key i, query j) in the output at t (the table of
// docs/mixers.md#hla-definitions).
double PairWeight(HlaForm form, double gamma, size_t t, size_t i, size_t j) {
  const double weight = std::pow(gamma, static_cast<double>(2 * t - i - j));
  if (i <= j || form == HlaForm::kUnmasked) return weight;
  if (form == HlaForm::kMasked) return 0.0;
  // i > j means t >= i >= j + 1, so the exponent is not negative.
  return weight - std::pow(gamma, static_cast<double>(t - 1 - j));
}

// The weight of v_j in the output at t.
double ValueWeight(const HlaReferenceInput& input, const Matrix& qk, const Matrix& qq, size_t t,
                   size_t j) {
  const size_t tokens = input.tokens;
  double sum = 0.0;
  for (size_t i = 0; i <= t; ++i) {
    sum += PairWeight(input.form, input.gamma, t, i, j) * qk[t * tokens + i] * qk[j * tokens + i];
  }
  return sum + input.ridge_lambda * std::pow(input.gamma, static_cast<double>(t - j)) *
                   qq[t * tokens + j];
}

}  // namespace

std::vector<double> HlaReference(const HlaReferenceInput& input) {
  const Matrix qk = Products(input.q, input.k, input.tokens, input.key_dim);
  const Matrix qq = Products(input.q, input.q, input.tokens, input.key_dim);
  return WeighValues(input, [&](size_t t) {
    std::vector<double> weights;
    for (size_t j = 0; j <= t; ++j) weights.push_back(ValueWeight(input, qk, qq, t, j));
    return weights;
  });
}

}  // namespace rivulet
