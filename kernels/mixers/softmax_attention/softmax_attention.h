// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer "softmax_attention": attention over all earlier tokens or a window of them (README.md).
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// A MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeSoftmaxAttention(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_H_
