// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"

namespace rivulet {

DeltaRuleLayer::DeltaRuleLayer(const DeltaRuleConfig& config, const MixerSource& source)
    : projection_(config, source, layout_),
      recurrence_(DeltaRuleDeclaration(config.shape), layout_),
      output_(DeltaRuleOutput(config), source) {}

absl::Status DeltaRuleLayer::Forward(const MixerStep& step, ConstFloatMatrix x,
                                     FloatMatrix y) const {
  const DeltaRuleProjection::Result projected = projection_.Apply(step, x);
  output_.Apply(step, RunRecurrence(step, recurrence_, projected.input), projected.gate, y);
  return absl::OkStatus();
}

}  // namespace rivulet
