// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "h3": Hungry Hungry Hippos (README.md).
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeH3(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_H_
