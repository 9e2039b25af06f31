// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"

namespace rivulet {

DeltaRuleLayer::DeltaRuleLayer(const DeltaRuleConfig& config, const MixerSource& source)
    : projection_(config, source, layout_),
      recurrence_(DeltaRuleDeclaration(config.shape), layout_),
      output_(DeltaRuleOutput(config), source) {}

absl::Status DeltaRuleLayer::Forward(const MixerStep& step, ConstFloatMatrix x,
                                     FloatMatrix y) const {
  const HeadShape& shape = recurrence_.shape();
  const DeltaRuleProjection::Result projected = projection_.Apply(step, x);
  const FloatMatrix o = step.workspace->Take(x.rows, shape.heads * shape.padded_value());
  recurrence_.Run(step, projected.input, o);
  output_.Apply(step, o, projected.gate, y);
  return absl::OkStatus();
}

}  // namespace rivulet
