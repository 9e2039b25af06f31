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
  const size_t tokens = input.tokens;
  const std::vector<double> scores = CausalScores(input);
  return WeighValues(input, [&](size_t t) {
    std::vector<double> weights(t + 1);
    for (size_t j = 0; j <= t; ++j) {
      for (size_t i = j; i <= t; ++i) weights[j] += scores[t * tokens + i] * scores[i * tokens + j];
    }
    return weights;
  });
}

}  // namespace rivulet
