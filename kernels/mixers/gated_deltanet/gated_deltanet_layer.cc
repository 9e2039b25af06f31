// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/status.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"
#include "kernels/mixers/gated_deltanet/gated_deltanet.h"
#include "kernels/mixers/gated_deltanet/gated_deltanet_config.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Mixer>> MakeGatedDeltaNet(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const DeltaRuleConfig config,
                           ParseGatedDeltaNetConfig(source.config, source.options));
  // Trained before 2025-03-12, an fla layer holds a D that nothing ever read.
  if (source.parameters.Has("D")) source.parameters.TakeVector("D", {config.shape.key_heads});
  return std::make_unique<DeltaRuleLayer>(config, source);
}

}  // namespace rivulet
