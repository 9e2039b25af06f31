// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gated short convolution in fp64, as its definition says (README.md). For tests.
#ifndef RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_REFERENCE_H_

#include <cstddef>
#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/gated_convolution/gated_convolution.h"

namespace rivulet {

// [T * channels] for one session from position 0. weight [channels, window], bias [channels] or
// empty.
std::vector<double> GatedConvolutionReference(const AlignedBuffer<float>& weight,
                                              const AlignedBuffer<float>& bias, size_t window,
                                              const GatedConvolutionInput& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_REFERENCE_H_
