// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/latent_attention/latent_attention_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rivulet {
namespace {

// One head of one token.
void OneRow(const float* q, ConstFloatMatrix key, size_t width, size_t latent, size_t t,
            const Sees& sees, double* o) {
  std::vector<double> weight(t + 1, 0.0);
  for (size_t s = 0; s <= t; ++s) {
    if (!sees(t, s)) weight[s] = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < width; ++i) weight[s] += double{q[i]} * key.row(s)[i];
  }
  const double largest = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - largest);
  for (size_t s = 0; s <= t; ++s) {
    for (size_t i = 0; i < latent; ++i) o[i] += weight[s] / sum * key.row(s)[i];
  }
}

}  // namespace

std::vector<double> LatentAttentionReference(const SoftmaxAttentionShape& shape, ConstFloatMatrix q,
                                             ConstFloatMatrix key, const Sees& sees) {
  const size_t latent = shape.values();
  std::vector<double> out(q.rows * shape.heads * latent, 0.0);
  for (size_t t = 0; t < q.rows; ++t) {
    for (size_t h = 0; h < shape.heads; ++h) {
      OneRow(q.row(t) + h * shape.padded(), key, shape.head_dim, latent, t, sees,
             &out[(t * shape.heads + h) * latent]);
    }
  }
  return out;
}

}  // namespace rivulet
