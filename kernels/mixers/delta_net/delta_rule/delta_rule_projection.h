// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// From a layer's input to what the delta rule reads (docs/mixers.md#deltanet, #gated-deltanet):
//
//   q, k, v, z, b, a = x W;   q, k, v through the short convolution
//   q, k = D^{-1/2} norm(f(q)), norm(f(k))     v = silu(v)     (scale_queries)
//   β = σ(b), doubled for negative eigenvalues     g = -e^{A_log} softplus(a + dt_bias)
//
// for both layouts of tensors. z is the output gate, which the recurrence does not see; l are the
// logits of the level weights of kernels/mixers/log_linear_gated_deltanet.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_PROJECTION_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_PROJECTION_H_

#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class DeltaRuleProjection {
 public:
  // Takes the tensors, and adds the convolution's planes to `layout`.
  DeltaRuleProjection(const DeltaRuleConfig& config, const MixerSource& source,
                      StateLayout& layout);

  struct Result {
    TokenInputs input;
    ConstFloatMatrix gate;    // z [T, Hv*E] without padding between heads; null data without a gate
    ConstFloatMatrix levels;  // l [T, level_columns]; null data without
  };

  // For x [T, hidden], in the step's workspace. Advances the convolution's state.
  Result Apply(const MixerStep& step, ConstFloatMatrix x) const;

 private:
  void TakeDecay(ParameterSource& parameters);

  FloatMatrix Keys(const MixerStep& step, FloatMatrix x, float scale) const;
  FloatMatrix Beta(const MixerStep& step, ConstFloatMatrix x, ConstFloatMatrix b) const;
  FloatMatrix LogDecay(const MixerStep& step, ConstFloatMatrix a) const;

  DeltaRuleConfig config_;
  Projection projection_;
  PartConvolution convolution_;
  // What remains to be applied after the convolution.
  Activation qk_activation_, v_activation_;
  AlignedBuffer<float> rate_, rate_bias_;  // [Hv]: -e^{A_log}, dt_bias; empty without decay
};

// The norm, gate and output projection behind the recurrence.
HeadOutputConfig DeltaRuleOutput(const DeltaRuleConfig& config);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_PROJECTION_H_
