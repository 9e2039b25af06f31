// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How a config.json writes rotary positions: transformers 4 (rope_theta, rope_scaling,
// partial_rotary_factor) and transformers 5 (all of it in rope_parameters).
#ifndef RIVULET_KERNELS_MIXERS_ROPE_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_ROPE_CONFIG_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/ops/rope/rope.h"
#include "nlohmann/json_fwd.hpp"

namespace rivulet {

// Default: theta 10000 over the whole head, no scaling. Whether a layer rotates at all is its own
// business. INVALID_ARGUMENT names key, value and remedy; a rope type that is not here (dynamic,
// yarn, longrope, ...) is refused by its name, as are parameters that differ by layer type.
absl::StatusOr<RopeConfig> ParseRope(const nlohmann::json& json, size_t head_dim);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ROPE_CONFIG_H_
