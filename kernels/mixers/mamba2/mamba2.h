// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "mamba2": Mamba-2 / SSD (README.md).
#ifndef RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_H_
#define RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba2(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MAMBA2_MAMBA2_H_
