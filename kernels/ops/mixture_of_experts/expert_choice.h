// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Which experts a token gets, and with which weights, from the router's logits.
//
// Threading: a pure function of its arguments.
#ifndef RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_EXPERT_CHOICE_H_
#define RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_EXPERT_CHOICE_H_

#include <cstddef>
#include <cstdint>

namespace rivulet {

struct ExpertChoice {
  size_t experts = 0;
  size_t experts_per_token = 0;  // from 1 to `experts`
  // True: softmax over the logits of the chosen experts (Granite; the same as Qwen's softmax over
  // all of them, renormalised). False: softmax over all experts, so that the weights of the chosen
  // ones add up to less than one.
  bool weights_sum_to_one = true;
};

// The experts of the largest logits, the lower index where two are equal, in ascending order of
// index: ids, weights [experts_per_token]. logits [experts] is overwritten. Logits that are NaN
// come last, and make the weights NaN at most: ids are always distinct and in range.
void ChooseExperts(const ExpertChoice& choice, float* logits, uint32_t* ids, float* weights);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_EXPERT_CHOICE_H_
