// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"

#include "kernels/ops/norm/norm.h"

namespace rivulet {

DeltaRuleLayer::DeltaRuleLayer(const DeltaRuleConfig& config, const MixerSource& source)
    : projection_(config, source, layout_),
      recurrence_(config.shape, layout_),
      norm_eps_(config.norm_eps) {
  const bool fla = config.tensors == DeltaRuleTensors::kFla;
  norm_ =
      source.parameters.TakeVector(fla ? "o_norm.weight" : "norm.weight", {config.shape.value_dim});
  output_ =
      source.parameters.TakeLinear({{fla ? "o_proj.weight" : "out_proj.weight", source.hidden, ""}},
                                   config.shape.value_heads * config.shape.value_dim);
}

absl::Status DeltaRuleLayer::Forward(const MixerStep& step, ConstFloatMatrix x,
                                     FloatMatrix y) const {
  const DeltaRuleShape& shape = recurrence_.shape();
  const DeltaRuleProjection::Result projected = projection_.Apply(step, x);
  const FloatMatrix o = step.workspace->Take(x.rows, shape.value_heads * shape.padded_value());
  recurrence_.Run(step.segments, step.state, projected.input, o, *step.pool);
  const FloatMatrix normed = step.workspace->Take(x.rows, shape.value_heads * shape.value_dim);
  HeadNormGate(o, shape.value_heads, shape.value_dim, shape.padded_value(), norm_.data(), norm_eps_,
               projected.gate, normed, *step.pool);
  output_.Apply(normed, y, *step.pool);
  return absl::OkStatus();
}

}  // namespace rivulet
