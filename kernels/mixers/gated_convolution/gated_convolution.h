// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A short convolution with a gate on either side (LFM2):
//
//   y_t = C_t ∘ (bias + Σ_{l<W} w_l ∘ B_{t-l} ∘ x_{t-l})
//
// State: that of the convolution over B ∘ x (short_convolution.h), and nothing else. It has no
// projections; the layer does.
//
// Bits: B ∘ x is one product a number, the convolution one chain, C one more product.
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_H_
#define RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_H_

#include <cstddef>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

// Each [T, channels].
struct GatedConvolutionInput {
  ConstFloatMatrix b, c, x;
};

class GatedConvolution {
 public:
  // weight [channels, window], bias [channels] or empty. Adds the planes "conv.before" and
  // "conv.tail" to `layout`.
  GatedConvolution(AlignedBuffer<float> weight, AlignedBuffer<float> bias, size_t channels,
                   size_t window, StateLayout& layout);

  // y [T, channels], which overlaps no input; advances the segments' slots. Temporaries come from
  // the step's workspace.
  void Run(const LayerStep& step, const GatedConvolutionInput& input, FloatMatrix y) const;

  // The convolution of b ∘ x, for a device's row preparation.
  DeviceConvolution OnDevice(Device& device, ConstFloatMatrix x, ConstFloatMatrix b) const;

 private:
  ShortConvolution convolution_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_GATED_CONVOLUTION_GATED_CONVOLUTION_H_
