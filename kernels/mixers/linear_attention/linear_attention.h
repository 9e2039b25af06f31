// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "linear_attn": linear attention with a feature map (README.md).
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeLinearAttention(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_H_
