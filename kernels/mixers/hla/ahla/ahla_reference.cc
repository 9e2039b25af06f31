// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/hla/ahla/ahla_reference.h"

#include <cmath>

namespace rivulet {
namespace {

// W [T, T]: γ^{t-s} q_t·k_s on and below the diagonal.
std::vector<double> CausalScores(const HeadSequence& input) {
  const size_t tokens = input.tokens, dim = input.key_dim;
  std::vector<double> scores(tokens * tokens);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t s = 0; s <= t; ++s) {
      double dot = 0.0;
      for (size_t i = 0; i < dim; ++i) dot += input.q[t * dim + i] * input.k[s * dim + i];
      scores[t * tokens + s] = std::pow(input.gamma, static_cast<double>(t - s)) * dot;
    }
  }
  return scores;
}

}  // namespace

std::vector<double> AhlaReference(const HeadSequence& input) {
  const size_t tokens = input.tokens, width = input.value_dim;
  const std::vector<double> scores = CausalScores(input);
  std::vector<double> out(tokens * width);
  for (size_t t = 0; t < tokens; ++t) {
    double denominator = input.denom_eps;
    for (size_t j = 0; j <= t; ++j) {
      double weight = 0.0;
      for (size_t i = j; i <= t; ++i) weight += scores[t * tokens + i] * scores[i * tokens + j];
      denominator += weight;
      for (size_t c = 0; c < width; ++c) out[t * width + c] += weight * input.v[j * width + c];
    }
    if (!input.normalize) continue;
    for (size_t c = 0; c < width; ++c) out[t * width + c] /= denominator;
  }
  return out;
}

}  // namespace rivulet
