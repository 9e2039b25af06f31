// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/base/status.h"
#include "kernels/mixers/delta_net/delta_net.h"
#include "kernels/mixers/delta_net/delta_net_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_layer.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Mixer>> MakeDeltaNet(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const DeltaRuleConfig config,
                           ParseDeltaNetConfig(source.config, source.hidden, source.options));
  return std::make_unique<DeltaRuleLayer>(config, source);
}

}  // namespace rivulet
