// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "anna": approximate nearest neighbour attention by hash tables (README.md).
#ifndef RIVULET_KERNELS_MIXERS_ANNA_ANNA_H_
#define RIVULET_KERNELS_MIXERS_ANNA_ANNA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeAnna(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_ANNA_ANNA_H_
