// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How a config.json writes rotary positions: transformers 4 (rope_theta, rope_scaling,
// partial_rotary_factor) and transformers 5 (all of it in rope_parameters).
#ifndef RIVULET_MODEL_LOADER_MIXERS_ROPE_CONFIG_H_
#define RIVULET_MODEL_LOADER_MIXERS_ROPE_CONFIG_H_

#include <cstddef>

#include "kernels/ops/rope/rope.h"
#include "model_loader/config_reader.h"

namespace rivulet {

// Defaults: theta 10000, no scaling, `default_part` of the head rotated. Whether a layer rotates at
// all is for the caller to decide. Rope types other than default, linear and llama3 are refused by
// name, and so are parameters that differ by layer type.
RopeConfig ParseRope(ConfigReader& config, size_t head_dim, double default_part = 1.0);

}  // namespace rivulet

#endif  // RIVULET_MODEL_LOADER_MIXERS_ROPE_CONFIG_H_
