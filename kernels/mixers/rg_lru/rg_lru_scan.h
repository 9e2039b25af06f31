// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The inner loop of the RG-LRU: one block of kBlock channels of one session over consecutive
// tokens, vector lanes over channels.
//
// Bits: a state is one fused multiply-add of its own token's numbers and of the state before;
// nothing depends on how many tokens a call has.
//
// Threading: a pure function of its argument; two calls may run at once unless one writes what the
// other touches.
#ifndef RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_SCAN_H_
#define RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_SCAN_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"

namespace rivulet {

struct RgLruScan {
  size_t channels = 0;          // 1 to kBlock; the views below have as many columns
  const float* rate = nullptr;  // [kBlock], zeros beyond `channels`
  const float* from = nullptr;  // [kBlock]: h before the first token; null: it starts its session
  float* rows = nullptr;        // [tokens, kBlock], row_stride apart: h after each token
  size_t row_stride = 0;
  ConstFloatMatrix x, input_gate, recurrent_gate;  // [tokens, channels]
  FloatMatrix h;                                   // [tokens, channels]: the rows again
};

void ScanRgLru(const RgLruScan& scan);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_SCAN_H_
