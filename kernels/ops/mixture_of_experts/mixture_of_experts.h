// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A feed-forward block of many MLPs, of which a router chooses a few for each token:
//   y = Σ weight_e · expert_e(x) over the chosen experts  (+ gate · shared(x))
// where gate is one, or σ of one more output of the router's map. Experts that work in a narrower
// space (latent, Nemotron 3) read down(x), and up of their sum is added.
//
// Bits: a token's sum begins with the shared expert and runs over its experts in ascending order,
// one chain. Tokens are grouped by expert for speed, but the experts' maps give a row the same bits
// regardless of the other rows (linear.h), so a token's output does not depend on other tokens.
//
// It balances no load and drops no token. Threading: feed_forward.h. NOTES.md: cost and memory.
#ifndef RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_MIXTURE_OF_EXPERTS_H_
#define RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_MIXTURE_OF_EXPERTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/base/activation_kind.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/ops/mixture_of_experts/expert_choice.h"

namespace rivulet {

struct ExpertPairs;

// One expert's maps: [width, inputs] and [inputs, width], or [2 * width, inputs] with the gate's
// rows first for a gated one.
struct ExpertMaps {
  Linear in, out;
};

struct MixtureParts {
  ExpertChoice choice;
  // [experts, hidden], and one more output where the shared expert has a gate.
  Linear router;
  AlignedBuffer<float> correction = {};  // [experts] of kSigmoid; empty: zeros
  std::vector<ExpertMaps> experts = {};  // of one width
  bool gated = true;                     // out(f(gate x) · up x), else out(f(in x))
  Activation f = Activation::kSilu;
  float limit = 0;                                // of gated experts: GatedMlpForm::limit
  std::unique_ptr<FeedForward> shared = nullptr;  // null: none
  Linear latent_down = {}, latent_up = {};        // empty: the experts' inputs are x
};

class MixtureOfExperts : public FeedForward {
 public:
  explicit MixtureOfExperts(MixtureParts parts);

  // Temporaries: T times experts_per_token numbers a few times over, and rows of the experts'
  // inputs and widths for at most max(T, kPassRows) of the T · experts_per_token pairs at once.
  void Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;

  static constexpr size_t kPassRows = 1024;

 private:
  bool shared_is_gated() const { return parts_.router.outputs() > parts_.choice.experts; }
  bool latent() const { return parts_.latent_down.outputs() > 0; }
  void StartSums(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix logits,
                 FloatMatrix y) const;
  void AddExperts(const ExpertPairs& pairs, ConstFloatMatrix x, FloatMatrix y, Workspace& workspace,
                  ThreadPool& pool) const;
  void AddLatentExperts(const ExpertPairs& pairs, ConstFloatMatrix x, FloatMatrix y,
                        Workspace& workspace, ThreadPool& pool) const;
  void Activate(FloatMatrix middle, size_t width, ThreadPool& pool) const;

  MixtureParts parts_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_MIXTURE_OF_EXPERTS_MIXTURE_OF_EXPERTS_H_
