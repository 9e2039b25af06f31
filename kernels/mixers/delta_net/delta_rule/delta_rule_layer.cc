// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"

#include <memory>

namespace rivulet {

DeltaRuleLayer::DeltaRuleLayer(const DeltaRuleConfig& config, const MixerSource& source)
    : layout_(source.options.fold_interval),
      projection_(config, source, layout_),
      recurrence_(DeltaRuleDeclaration(config.shape), layout_),
      output_(DeltaRuleOutput(config), source) {}

absl::Status DeltaRuleLayer::Forward(const MixerStep& step, ConstFloatMatrix x,
                                     FloatMatrix y) const {
  const DeltaRuleProjection::Result projected = projection_.Apply(step, x);
  output_.Apply(step, RunRecurrence(step, recurrence_, projected.input), projected.gate, y);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const DeltaRuleConfig& config,
                                                 const MixerSource& source) {
  // Checkpoints of Gated DeltaNet from before 2025-03-12 hold a D that nothing ever read.
  if (config.shape.decays && source.parameters.Has("D")) {
    source.parameters.TakeVector("D", {config.shape.key_heads});
  }
  DeltaRuleConfig with_dtype = config;
  with_dtype.shape.state_dtype = source.options.state_dtype;
  return std::make_unique<DeltaRuleLayer>(with_dtype, source);
}

}  // namespace rivulet
