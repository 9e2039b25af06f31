// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// What config.json decides about a DeltaNet layer (fla `delta_net`; docs/mixers.md#deltanet).
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_NET_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_NET_CONFIG_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/mixer.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// INVALID_ARGUMENT names the key, its value and the remedy.
absl::StatusOr<DeltaRuleConfig> ParseDeltaNetConfig(const nlohmann::json& json, size_t hidden,
                                                    const MixerOptions& options);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_NET_CONFIG_H_
