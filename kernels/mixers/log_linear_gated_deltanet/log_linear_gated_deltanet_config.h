// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A log-linear Gated DeltaNet layer (docs/mixers.md#log-linear-gated-deltanet).
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

struct LogLinearGatedDeltaNetConfig {
  DeltaRuleConfig delta_rule = {};  // with as many value heads as key heads, and fla's tensors
  uint32_t max_levels = 0;          // 0: as many as the tensor L has
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LogLinearGatedDeltaNetConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_CONFIG_H_
