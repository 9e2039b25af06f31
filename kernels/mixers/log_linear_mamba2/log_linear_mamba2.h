// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "log_linear_mamba2", also called "hattention": log-linear Mamba-2 (README.md).
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeLogLinearMamba2(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_H_
