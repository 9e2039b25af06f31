// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer of DeltaNet, Gated DeltaNet and log-linear Gated DeltaNet (docs/mixers.md#deltanet,
// #gated-deltanet, #log-linear-gated-deltanet):
//
//   q, k, v, z, b, a, l = x W;   q, k, v through the short convolution
//   q, k = D^{-1/2} norm(f(q)), norm(f(k))     v = silu(v)     (scale_queries)
//   β = σ(b), doubled for negative eigenvalues     g = -e^{A_log} softplus(a + dt_bias)
//   λ = softplus(L ∘ l)
//   o = recurrence(q, k, v, β, g, λ)     y = (rms(o) · w · silu(z)) W_o
//
// What a mixer does not have is absent from its config: DeltaNet has no a, g, l and λ, and only the
// log-linear form has l and λ. The mixers also differ in their recurrence's declaration.
//
// Threading: as Mixer says.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_LAYER_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_LAYER_H_

#include <cstdint>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/state.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {

class DeltaRuleLayer : public Mixer {
 public:
  // Takes the layer's tensors. `declaration` is DeltaRuleDeclaration or the log-linear one.
  DeltaRuleLayer(const DeltaRuleConfig& config, const RecurrenceDeclaration& declaration,
                 const MixerSource& source);

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return max_tokens_; }
  absl::Status Forward(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;

 private:
  void TakeDecay(ParameterSource& parameters);

  FloatMatrix Keys(const LayerStep& step, FloatMatrix x, float scale) const;
  FloatMatrix Beta(const LayerStep& step, ConstFloatMatrix x, ConstFloatMatrix b) const;
  FloatMatrix LogDecay(const LayerStep& step, ConstFloatMatrix a) const;

  DeltaRuleConfig config_;
  StateLayout layout_;
  uint64_t max_tokens_;
  Projection projection_;
  PartConvolution convolution_;
  // What remains to be applied after the convolution.
  Activation qk_activation_, v_activation_;
  AlignedBuffer<float> rate_, rate_bias_;  // [Hv]: -e^{A_log}, dt_bias; empty without decay
  LevelWeights level_weights_;             // of the log-linear form
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_LAYER_H_
