// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/third_order/third_order_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

using Matrix = std::vector<double>;  // [T, T], row-major

double Power(double gamma, size_t exponent) {
  return std::pow(gamma, static_cast<double>(exponent));
}

// [T, T] of all q_t · k_s.
Matrix Scores(const ThirdOrderReferenceInput& input) {
  const size_t tokens = input.tokens, dim = input.key_dim;
  Matrix scores(tokens * tokens);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t s = 0; s < tokens; ++s) {
      for (size_t c = 0; c < dim; ++c) {
        scores[t * tokens + s] += input.q[t * dim + c] * input.k[s * dim + c];
      }
    }
  }
  return scores;
}

class Weights {
 public:
  explicit Weights(const ThirdOrderReferenceInput& input)
      : tokens_(input.tokens), gamma_(input.gamma), scores_(Scores(input)) {
    for (size_t n = 0; n <= tokens_; ++n) powers_.push_back(Power(gamma_, n));
    if (input.paper) PeelMaxima();
  }

  // [T]: the weight of v_j at t, 13a: u <= t, and i, j <= u.
  std::vector<double> Masked(size_t t) const {
    std::vector<double> weights(tokens_);
    for (size_t u = 0; u <= t; ++u) {
      double keys = 0.0;
      for (size_t i = 0; i <= u; ++i) keys += powers_[t - i] * At(t, i) * At(u, i);
      for (size_t j = 0; j <= u; ++j) {
        weights[j] += powers_[t - u] * keys * powers_[t - j] * At(u, j);
      }
    }
    return weights;
  }

  // The same, 13b: all i, u, j <= t, less the triples whose maximum m one index alone has, as they
  // were at m - 1, decayed since m.
  std::vector<double> Paper(size_t t) const {
    std::vector<double> weights(tokens_);
    for (size_t u = 0; u <= t; ++u) {
      double keys = 0.0;
      for (size_t i = 0; i <= t; ++i) keys += powers_[t - i] * At(t, i) * At(u, i);
      for (size_t j = 0; j <= t; ++j) {
        weights[j] += powers_[t - u] * keys * powers_[t - j] * At(u, j);
      }
    }
    for (size_t m = 1; m <= t; ++m) SubtractMaximum(t, m, weights);
    return weights;
  }

 private:
  double At(size_t t, size_t s) const { return scores_[t * tokens_ + s]; }

  // through_[m, j] = Σ_{u<m} γ^{m-1-u} γ^{m-1-j} (q_u·k_m)(q_u·k_j): from key m to key j over the
  // queries before m.
  void PeelMaxima() {
    through_.resize(tokens_ * tokens_);
    for (size_t m = 1; m < tokens_; ++m) {
      for (size_t u = 0; u < m; ++u) {
        const double query = powers_[m - 1 - u] * At(u, m);
        for (size_t j = 0; j < m; ++j) {
          through_[m * tokens_ + j] += query * powers_[m - 1 - j] * At(u, j);
        }
      }
    }
  }

  void SubtractMaximum(size_t t, size_t m, std::vector<double>& weights) const {
    const double* through = &through_[m * tokens_];
    double i_below_u = 0.0, i_below_j = 0.0;
    for (size_t i = 0; i < m; ++i) {
      i_below_u += powers_[m - 1 - i] * At(t, i) * At(m, i);
      i_below_j += At(t, i) * through[i];
    }
    const double since = powers_[t - m];
    for (size_t j = 0; j < m; ++j) {
      weights[j] -= since * At(t, m) * through[j];                      // m = i
      weights[j] -= since * i_below_u * powers_[m - 1 - j] * At(m, j);  // m = u
    }
    weights[m] -= since * i_below_j;  // m = j
  }

  size_t tokens_;
  double gamma_;
  Matrix scores_, through_;
  std::vector<double> powers_;
};

}  // namespace

double TripleWeight(bool paper, double gamma, size_t t, size_t i, size_t u, size_t j) {
  const double weight = Power(gamma, 3 * t - i - u - j);
  if (!paper) return i <= u && j <= u ? weight : 0.0;
  const size_t m = std::max({i, u, j});
  if ((i == m) + (u == m) + (j == m) > 1) return weight;
  return weight - Power(gamma, t - m) * Power(gamma, 2 * (m - 1) - (i + u + j - m));
}

std::vector<double> ThirdOrderReference(const ThirdOrderReferenceInput& input) {
  const Weights weights(input);
  return WeighValues(input,
                     [&](size_t t) { return input.paper ? weights.Paper(t) : weights.Masked(t); });
}

}  // namespace rivulet
