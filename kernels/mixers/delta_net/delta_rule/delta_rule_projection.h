// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// From a layer's input to what the delta rule reads (docs/mixers.md#deltanet, #gated-deltanet):
//
//   q, k, v, b, a, z = x W;   q, k, v through the short convolution
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
#include "kernels/mixers/fla_convolution.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

class DeltaRuleProjection {
 public:
  // Takes the tensors, and adds the convolution's planes to `layout`.
  DeltaRuleProjection(const DeltaRuleConfig& config, const MixerSource& source,
                      StateLayout& layout);

  struct Result {
    DeltaRuleInput input;
    ConstFloatMatrix gate;    // z [T, Hv*E] without padding between heads; null data without a gate
    ConstFloatMatrix levels;  // l [T, level_columns]; null data without
  };

  // For x [T, hidden], in the step's workspace. Advances the convolution's state.
  Result Apply(const MixerStep& step, ConstFloatMatrix x) const;

 private:
  // The columns of the projection: q | k | v, b, a, z, l.
  struct Parts {
    ConstFloatMatrix qkv, b, a, z, l;
  };

  size_t key_columns() const { return config_.shape.key_heads * config_.shape.key_dim; }
  size_t value_columns() const { return config_.shape.value_heads * config_.shape.value_dim; }
  size_t qkv_columns() const { return 2 * key_columns() + value_columns(); }

  void TakeFla(const MixerSource& source);
  void TakeQwen3Next(const MixerSource& source);
  void TakeConvolution(ParameterSource& parameters, StateLayout& layout);
  void TakeDecay(ParameterSource& parameters);

  Parts SplitFla(ConstFloatMatrix projected) const;
  Parts SplitQwen3Next(const MixerStep& step, ConstFloatMatrix projected) const;
  ConstFloatMatrix Keys(const MixerStep& step, ConstFloatMatrix x, float scale) const;
  ConstFloatMatrix Values(const MixerStep& step, ConstFloatMatrix x) const;
  ConstFloatMatrix Beta(const MixerStep& step, size_t tokens, ConstFloatMatrix b) const;
  ConstFloatMatrix LogDecay(const MixerStep& step, ConstFloatMatrix a) const;

  DeltaRuleConfig config_;
  Linear input_;
  FlaConvolution convolution_;
  // What the convolution leaves to be applied.
  Activation qk_activation_, v_activation_;
  AlignedBuffer<float> rate_, rate_bias_;  // [Hv]: -e^{A_log}, dt_bias; empty without decay
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_PROJECTION_H_
