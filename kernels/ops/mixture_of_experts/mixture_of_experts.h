// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A feed-forward block of many gated MLPs, of which a router chooses a few for each token:
//   y = Σ weight_e · expert_e(x) over the chosen experts  (+ gate · shared(x))
// where gate is one, or σ of one more output of the router's map.
//
// Bits: a token's sum begins with the shared expert and runs over its experts in ascending order,
// one chain. Tokens are grouped by expert for speed, but the experts' maps give a row the same bits
// regardless of the other rows (linear.h), so a token's output does not depend on other tokens.
//
// It balances no load and drops no token. Threading: feed_forward.h. NOTES.md: cost and memory.
#ifndef RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_MIXTURE_OF_EXPERTS_H_
#define RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_MIXTURE_OF_EXPERTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/gated_mlp/gated_mlp.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

// Which experts a token gets, and with which weights, from the router's logits.
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

class MixtureOfExperts : public FeedForward {
 public:
  // router: [experts, hidden], and one more output where the shared expert has a gate. The experts
  // have one width; the shared one may have another.
  MixtureOfExperts(const ExpertChoice& choice, Linear router, std::vector<GatedMlp> experts,
                   std::optional<GatedMlp> shared);

  // Temporaries: T times experts_per_token numbers a few times over, and rows of the experts'
  // inputs and widths for at most max(T, kPassRows) of the T · experts_per_token pairs at once.
  void Apply(ConstFloatMatrix x, FloatMatrix y, Workspace& workspace,
             ThreadPool& pool) const override;

  static constexpr size_t kPassRows = 1024;

 private:
  bool shared_is_gated() const { return router_.outputs() > choice_.experts; }
  void StartSums(ConstFloatMatrix x, ConstFloatMatrix logits, FloatMatrix y, Workspace& workspace,
                 ThreadPool& pool) const;

  ExpertChoice choice_;
  Linear router_;
  std::vector<GatedMlp> experts_;
  std::optional<GatedMlp> shared_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_MIXTURE_OF_EXPERTS_H_
