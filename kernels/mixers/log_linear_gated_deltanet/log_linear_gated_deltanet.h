// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "h_gated_deltanet", also called "log_linear_gated_deltanet": log-linear Gated DeltaNet
// (README.md).
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeLogLinearGatedDeltaNet(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_GATED_DELTANET_LOG_LINEAR_GATED_DELTANET_H_
