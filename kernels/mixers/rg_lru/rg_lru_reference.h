// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The RG-LRU in fp64 as a sum over pairs of tokens (docs/mixers.md#rg-lru). For tests; quadratic in
// the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_REFERENCE_H_

#include <vector>

#include "kernels/base/aligned_buffer.h"
#include "kernels/mixers/rg_lru/rg_lru_recurrence.h"

namespace rivulet {

// [T * W]: h for one session from position 0.
std::vector<double> RgLruReference(const AlignedBuffer<float>& rate, const RgLruInput& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RG_LRU_RG_LRU_REFERENCE_H_
