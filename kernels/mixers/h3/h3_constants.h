// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// An H3 layer's trained SSMs as what its recurrence multiplies by: the taps of the shift SSM, and
// poles and weights of the diagonal one. Computed in fp64 and rounded once.
//
// Letters: D channels, Hs heads, hd head width, N state size, M = N/2 modes.
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_CONSTANTS_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_CONSTANTS_H_

#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/parameter_source.h"

namespace rivulet {

struct H3Constants {
  // [D, N] for channel h·hd + i: κ[c, l] = Σ_n B[c, n] C[c, n + l], and κ[c, 0] with the skip
  // ssm_k_D added.
  AlignedBuffer<float> taps;
  // [Hs, M]: the pole dA, and 2 · C · dB, so that a head's kernel is K[l] = Re Σ_n weight_n
  // pole_n^l.
  AlignedBuffer<float> pole_real, pole_imaginary, weight_real, weight_imaginary;
  AlignedBuffer<float> skip;  // [Hs]: D
};

// Takes the SSMs' tensors. Those that fail are recorded by `parameters` and read as zeros.
H3Constants TakeH3Constants(const H3Config& config, ParameterSource& parameters);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_CONSTANTS_H_
