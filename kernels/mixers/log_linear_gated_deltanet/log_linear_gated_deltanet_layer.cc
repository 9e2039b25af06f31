// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/base/status.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_config.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_recurrence.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LogLinearGatedDeltaNetConfig& config,
                                                 const MixerSource& source) {
  DeltaRuleShape shape = config.delta_rule.shape;
  RIVULET_ASSIGN_OR_RETURN(
      const uint32_t levels,
      FindLevels(config.max_levels, {"l_proj.weight", 0, shape.value_heads}, source.parameters));
  shape.state_dtype = source.options.state_dtype;
  return std::make_unique<DeltaRuleLayer>(
      config.delta_rule,
      LogLinearGatedDeltaNetDeclaration(DeltaRuleDeclaration(shape).shape, levels), source);
}

}  // namespace rivulet
