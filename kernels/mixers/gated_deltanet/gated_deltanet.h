// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "gated_deltanet": the delta rule with a decay, as fla and Qwen3-Next store it
// (README.md).
#ifndef RIVULET_KERNELS_MIXERS_GATED_DELTANET_GATED_DELTANET_H_
#define RIVULET_KERNELS_MIXERS_GATED_DELTANET_GATED_DELTANET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeGatedDeltaNet(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GATED_DELTANET_GATED_DELTANET_H_
