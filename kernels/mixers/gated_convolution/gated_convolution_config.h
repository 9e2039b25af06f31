// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of LFM2's gated short convolution (README.md).
#ifndef RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_CONFIG_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// It has as many channels as the residual stream.
struct GatedConvolutionConfig {
  size_t window = 3;  // W, in [2, kMaxConvolutionWindow]
  bool bias = false;  // of both projections and of the convolution
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const GatedConvolutionConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_CONFIG_H_
