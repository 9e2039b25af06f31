// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/mixture_of_experts/expert_choice.h"

#include <algorithm>

#include "kernels/ops/activation/activation.h"

namespace rivulet {
namespace {

// NaN is below everything, so that the order is one.
bool Above(float a, float b) { return a > b || (a == a && b != b); }

// ids [0, count) are sorted by falling logit; puts `id` among them and drops the last one where
// there are `most` already. Equal logits stay in the order in which they come.
size_t Insert(const float* logits, uint32_t id, uint32_t* ids, size_t count, size_t most) {
  size_t place = count;
  while (place > 0 && Above(logits[id], logits[ids[place - 1]])) --place;
  if (place == most) return count;
  const size_t end = std::min(count + 1, most);
  std::copy_backward(ids + place, ids + end - 1, ids + end);
  ids[place] = id;
  return end;
}

}  // namespace

void ChooseExperts(const ExpertChoice& choice, float* logits, uint32_t* ids, float* weights) {
  const size_t chosen = choice.experts_per_token;
  size_t count = 0;
  for (uint32_t id = 0; id < choice.experts; ++id) count = Insert(logits, id, ids, count, chosen);
  std::sort(ids, ids + chosen);
  if (!choice.weights_sum_to_one) Softmax(logits, logits, choice.experts);
  for (size_t i = 0; i < chosen; ++i) weights[i] = logits[ids[i]];
  if (choice.weights_sum_to_one) Softmax(weights, weights, chosen);
}

}  // namespace rivulet
