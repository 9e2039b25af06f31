// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/softmax_attention/softmax_attention_reference.h"

#include <algorithm>
#include <cmath>

namespace rivulet {
namespace {

double Score(const float* q, const float* k, size_t count) {
  double score = 0;
  for (size_t i = 0; i < count; ++i) score += double{q[i]} * k[i];
  return score;
}

// One head of one token: softmax over the tokens [t - window + 1, t] but those that are unseen,
// then the mean of their values.
void OneRow(const SoftmaxAttentionShape& shape, const SoftmaxAttentionInput& input, size_t head,
            size_t t, double* o) {
  const size_t d = shape.padded(), kv_head = head / shape.group(), kv = kv_head * d;
  const size_t in_window = shape.window == 0 || t < shape.window ? 0 : t + 1 - shape.window;
  const size_t from = std::max<size_t>(in_window, std::min<size_t>(shape.unseen, t));
  std::vector<double> weight;
  for (size_t s = from; s <= t; ++s) {
    weight.push_back(Score(input.q.row(t) + head * d, input.k.row(s) + kv, shape.head_dim));
  }
  const double largest = *std::max_element(weight.begin(), weight.end());
  double sum = 0;
  for (double& w : weight) sum += w = std::exp(w - largest);
  for (size_t s = from; s <= t; ++s) {
    const float* v = input.v.row(s) + kv_head * shape.padded_values();
    for (size_t j = 0; j < shape.values(); ++j) o[j] += weight[s - from] / sum * v[j];
  }
}

}  // namespace

std::vector<double> SoftmaxAttentionReference(const SoftmaxAttentionShape& shape,
                                              const SoftmaxAttentionInput& input, size_t first) {
  const size_t columns = shape.heads * shape.values();
  std::vector<double> out((input.q.rows - first) * columns, 0.0);
  for (size_t t = first; t < input.q.rows; ++t) {
    for (size_t head = 0; head < shape.heads; ++head) {
      OneRow(shape, input, head, t, &out[(t - first) * columns + head * shape.values()]);
    }
  }
  return out;
}

}  // namespace rivulet
