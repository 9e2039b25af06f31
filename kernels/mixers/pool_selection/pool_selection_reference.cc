// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/pool_selection/pool_selection_reference.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace rivulet {
namespace {

// Channel i of pool p's key.
double PoolKey(const PoolSelectionConfig& c, const float* ape, const PoolSelectionInput& input,
               size_t p, size_t i) {
  double sum = 0, weights = 0;
  for (size_t s = 0; s < c.pool && !c.gated; ++s) sum += input.k.row(p * c.pool + s)[i];
  if (!c.gated) return PoolFactor(p * c.pool) * sum / static_cast<double>(c.pool);
  for (size_t s = 0; s < c.pool; ++s) {
    const double weight =
        std::exp(double{input.gates.row(p * c.pool + s)[i]} + ape[s * c.padded() + i]);
    weights += weight;
    sum += weight * input.k.row(p * c.pool + s)[i];
  }
  return sum / weights;
}

double ScoreOf(const PoolSelectionConfig& c, const std::vector<double>& key,
               const PoolSelectionInput& input, size_t t) {
  double score = 0;
  for (size_t h = 0; h < c.heads; ++h) {
    double dot = 0;
    for (size_t i = 0; i < c.key_dim; ++i) dot += input.q.row(t)[h * c.padded() + i] * key[i];
    score += (c.gated ? input.weights.row(t)[h] : 1.0f) * std::max(dot, 0.0);
  }
  return score;
}

}  // namespace

std::vector<double> PoolSelectionReference(const PoolSelectionConfig& c, const float* ape,
                                           const PoolSelectionInput& input) {
  std::vector<double> out(input.q.rows * c.columns(), 0.0);
  std::vector<std::vector<double>> keys;
  for (size_t t = 0; t < input.q.rows; ++t) {
    while ((keys.size() + 1) * c.pool <= t + 1) {
      std::vector<double> key(c.key_dim);
      for (size_t i = 0; i < c.key_dim; ++i) key[i] = PoolKey(c, ape, input, keys.size(), i);
      keys.push_back(key);
    }
    std::vector<std::pair<double, size_t>> order;
    for (size_t p = 0; p < keys.size(); ++p) order.emplace_back(-ScoreOf(c, keys[p], input, t), p);
    std::sort(order.begin(), order.end());
    order.resize(std::min(order.size(), c.most));
    std::vector<double> chosen;
    for (const auto& [score, pool] : order) chosen.push_back(static_cast<double>(pool));
    std::sort(chosen.begin(), chosen.end());
    out[t * c.columns()] = static_cast<double>(chosen.size());
    std::copy(chosen.begin(), chosen.end(), out.begin() + t * c.columns() + 1);
  }
  return out;
}

}  // namespace rivulet
