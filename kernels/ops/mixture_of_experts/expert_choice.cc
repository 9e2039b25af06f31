// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/mixture_of_experts/expert_choice.h"

#include <algorithm>
#include <limits>

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

// ids [chosen] = the experts of the largest values, in ascending order of index.
void ChooseLargest(const float* values, size_t experts, size_t chosen, uint32_t* ids) {
  size_t count = 0;
  for (uint32_t id = 0; id < experts; ++id) count = Insert(values, id, ids, count, chosen);
  std::sort(ids, ids + chosen);
}

void ChooseBySoftmax(const ExpertChoice& choice, float* logits, uint32_t* ids, float* weights) {
  const size_t chosen = choice.experts_per_token;
  ChooseLargest(logits, choice.experts, chosen, ids);
  if (!choice.weights_sum_to_one) Softmax(logits, logits, choice.experts);
  for (size_t i = 0; i < chosen; ++i) weights[i] = logits[ids[i]];
  if (choice.weights_sum_to_one) Softmax(weights, weights, chosen);
}

// The sum of the two largest of a group's scores.
float GroupScore(const float* scores, size_t size) {
  float first = scores[0], second = -std::numeric_limits<float>::infinity();
  for (size_t i = 1; i < size; ++i) {
    if (Above(scores[i], first)) {
      second = first;
      first = scores[i];
    } else if (Above(scores[i], second)) {
      second = scores[i];
    }
  }
  return first + second;
}

// The scores of groups that are not among the best become NaN, which is chosen last.
void ExcludeGroups(const ExpertChoice& choice, float* scores) {
  if (choice.groups_per_token >= choice.groups) return;
  const size_t size = choice.experts / choice.groups;
  // How many groups come before this one; quadratic in a handful.
  const auto rank = [&](size_t group, const float* sums) {
    size_t before = 0;
    for (size_t other = 0; other < choice.groups; ++other) {
      const bool above = Above(sums[other], sums[group]);
      const bool equal = !above && !Above(sums[group], sums[other]);
      if (above || (equal && other < group)) ++before;
    }
    return before;
  };
  float sums[kMostExpertGroups];
  for (size_t g = 0; g < choice.groups; ++g) sums[g] = GroupScore(scores + g * size, size);
  for (size_t g = 0; g < choice.groups; ++g) {
    if (rank(g, sums) < choice.groups_per_token) continue;
    std::fill_n(scores + g * size, size, std::numeric_limits<float>::quiet_NaN());
  }
}

void ChooseBySigmoid(const ExpertChoice& choice, float* logits, uint32_t* ids, float* weights,
                     const float* correction) {
  constexpr float kLeastSum = 1e-20f;  // what DeepSeek adds to the divisor
  const size_t chosen = choice.experts_per_token;
  float scores[kMostSigmoidExperts];
  Activate(Activation::kSigmoid, logits, logits, choice.experts);
  for (size_t e = 0; e < choice.experts; ++e) {
    scores[e] = logits[e] + (correction == nullptr ? 0.0f : correction[e]);
  }
  ExcludeGroups(choice, scores);
  ChooseLargest(scores, choice.experts, chosen, ids);
  float sum = kLeastSum;
  for (size_t i = 0; i < chosen; ++i) {
    weights[i] = logits[ids[i]];
    sum += weights[i];
  }
  if (!choice.weights_sum_to_one) return;
  for (size_t i = 0; i < chosen; ++i) weights[i] /= sum;
}

}  // namespace

void ChooseExperts(const ExpertChoice& choice, float* logits, uint32_t* ids, float* weights,
                   const float* correction) {
  if (choice.scores == ExpertScores::kSigmoid) {
    ChooseBySigmoid(choice, logits, ids, weights, correction);
  } else {
    ChooseBySoftmax(choice, logits, ids, weights);
  }
  if (choice.scaling == 1) return;
  for (size_t i = 0; i < choice.experts_per_token; ++i) weights[i] *= choice.scaling;
}

}  // namespace rivulet
