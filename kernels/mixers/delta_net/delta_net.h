// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "delta_net": linear attention with the delta rule (README.md).
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_NET_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_NET_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeDeltaNet(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_NET_H_
