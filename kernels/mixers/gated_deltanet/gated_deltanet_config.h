// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What config.json decides about a Gated DeltaNet layer (fla `gated_deltanet`;
// docs/mixers.md#gated-deltanet). Qwen3-Next's own keys are translated into these by whoever reads
// its config.json.
#ifndef RIVULET_KERNELS_MIXERS_GATED_DELTANET_GATED_DELTANET_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_GATED_DELTANET_GATED_DELTANET_CONFIG_H_

#include "absl/status/statusor.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/mixer.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// INVALID_ARGUMENT names the key, its value and the remedy.
absl::StatusOr<DeltaRuleConfig> ParseGatedDeltaNetConfig(const nlohmann::json& json,
                                                         const MixerOptions& options);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GATED_DELTANET_GATED_DELTANET_CONFIG_H_
