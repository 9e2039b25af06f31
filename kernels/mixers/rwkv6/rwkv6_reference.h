// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// RWKV-6's recurrence without its bonus in fp64, from its definition. For tests; quadratic in the
// number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_RWKV6_RWKV6_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_RWKV6_RWKV6_REFERENCE_H_

#include <vector>

#include "kernels/recurrence/declaration.h"

namespace rivulet {

// [T * H*Ep]: what Run writes for one session from position 0, zeros in the padding.
std::vector<double> Rwkv6Reference(const HeadShape& shape, const TokenInputs& input);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RWKV6_RWKV6_REFERENCE_H_
