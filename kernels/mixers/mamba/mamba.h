// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "mamba": Mamba-1 / S6 (README.md).
#ifndef RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_H_
#define RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA_MAMBA_H_
