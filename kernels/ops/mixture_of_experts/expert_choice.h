// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which experts a token gets, and with which weights, from the logits of a router.
//
// Threading: pure functions.
#ifndef RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_EXPERT_CHOICE_H_
#define RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_EXPERT_CHOICE_H_

#include <cstddef>
#include <cstdint>

namespace rivulet {

// Of kSigmoid, so that a choice needs no memory of its own.
inline constexpr size_t kMostSigmoidExperts = 4096;
inline constexpr size_t kMostExpertGroups = kMostSigmoidExperts / 2;

enum class ExpertScores : uint8_t { kSoftmax, kSigmoid };

struct ExpertChoice {
  size_t experts = 0;
  size_t experts_per_token = 0;  // from 1 to `experts`
  // kSoftmax, true: softmax over the logits of the chosen experts (Granite; the same as Qwen's
  // softmax over all of them, renormalised). False: softmax over all experts, so that the weights
  // of the chosen ones add up to less than one. kSigmoid: whether σ of the chosen ones is divided
  // by their sum.
  bool weights_sum_to_one = true;
  ExpertScores scores = ExpertScores::kSoftmax;
  // kSigmoid: the experts are in `groups` groups of neighbours of equal size, at least two. Only
  // the experts of the `groups_per_token` groups whose two best scores have the largest sum can be
  // chosen; there are experts_per_token of them at least.
  size_t groups = 1;
  size_t groups_per_token = 1;
  float scaling = 1;  // of the weights
};

// The experts of the largest logits, the lower index where two are equal, in ascending order of
// index: ids, weights [experts_per_token]. logits [experts] is overwritten. Logits that are NaN
// come last, and make the weights NaN at most: ids are always distinct and in range.
// kSigmoid: of the largest σ(logit) + correction [experts], null for zeros, which the weights leave
// out.
void ChooseExperts(const ExpertChoice& choice, float* logits, uint32_t* ids, float* weights,
                   const float* correction = nullptr);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_EXPERT_CHOICE_H_
