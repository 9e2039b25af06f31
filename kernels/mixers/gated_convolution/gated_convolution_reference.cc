// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gated_convolution/gated_convolution_reference.h"

namespace rivulet {

std::vector<double> GatedConvolutionReference(const AlignedBuffer<float>& weight,
                                              const AlignedBuffer<float>& bias, size_t window,
                                              const GatedConvolutionInput& input) {
  std::vector<double> y;
  for (size_t t = 0; t < input.x.rows; ++t) {
    for (size_t c = 0; c < input.x.columns; ++c) {
      double sum = bias.empty() ? 0.0 : bias[c];
      for (size_t l = 0; l < window && l <= t; ++l) {
        const double tap = weight[c * window + window - 1 - l];
        sum += tap * input.b.row(t - l)[c] * input.x.row(t - l)[c];
      }
      y.push_back(input.c.row(t)[c] * sum);
    }
  }
  return y;
}

}  // namespace rivulet
