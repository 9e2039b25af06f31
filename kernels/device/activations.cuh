// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Activations of several numbers that a thread holds.
#ifndef RIVULET_KERNELS_DEVICE_ACTIVATIONS_CUH_
#define RIVULET_KERNELS_DEVICE_ACTIVATIONS_CUH_

#include "kernels/device/arithmetic.cuh"

namespace rivulet::cuda {

// A function of several numbers: the choice is made once, so that they are computed side by side
// and not one after the other.
template <int kFours>
__device__ inline void Apply(Activation f, float4 (&x)[kFours]) {
  if (f == Activation::kIdentity) return;
  if (f == Activation::kSilu) {
#pragma unroll
    for (float4& four : x) four = {Silu(four.x), Silu(four.y), Silu(four.z), Silu(four.w)};
    return;
  }
#pragma unroll
  for (float4& four : x) {
    four.x = OtherFunction(f, four.x), four.y = OtherFunction(f, four.y);
    four.z = OtherFunction(f, four.z), four.w = OtherFunction(f, four.w);
  }
}

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_ACTIVATIONS_CUH_
