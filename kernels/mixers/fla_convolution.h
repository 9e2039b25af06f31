// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The short convolutions of q, k and v in fla's layers: the tensors q_conv1d, k_conv1d and v_conv1d
// (docs/mixers.md#short-convolution). They are depthwise, so over a projection's columns q | k | v
// they are one convolution with one plane of state. A layer without convolutions is the
// default-constructed one, which hands its input through.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_FLA_CONVOLUTION_H_
#define RIVULET_KERNELS_MIXERS_FLA_CONVOLUTION_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/ops/short_convolution/short_convolution.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct FlaConvolutionShape {
  size_t q = 0, k = 0, v = 0;  // channels
  size_t window = 4;           // in [2, kFoldInterval]
  bool bias = false;           // q_conv1d.bias, ...
  // SiLU after the convolution of all three. Where fla gives q and k another activation, take it
  // without and activate each part when its heads are padded.
  bool silu = true;
  // One tensor conv1d over q | k | v instead of three, as Qwen3-Next stores it.
  bool joint = false;
};

class FlaConvolution {
 public:
  FlaConvolution() = default;

  // Takes the tensors and adds the planes "conv.before" and "conv.tail" to `layout`.
  FlaConvolution(const FlaConvolutionShape& shape, ParameterSource& parameters,
                 StateLayout& layout);

  // [T, q + k + v]: qkv [T, q + k + v] convolved, in the step's workspace, or qkv itself without
  // convolutions. Advances the state of the step's segments.
  ConstFloatMatrix Apply(const MixerStep& step, ConstFloatMatrix qkv) const;

 private:
  ShortConvolution convolution_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_FLA_CONVOLUTION_H_
