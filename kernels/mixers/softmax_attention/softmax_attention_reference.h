// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention in fp64 from its definition, a sum over all tokens that a token sees
// (docs/mixers.md#softmax-attention). For tests; quadratic in the number of tokens.
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_REFERENCE_H_

#include <cstddef>
#include <vector>

#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {

// [(T - first) * H*D]: what Run writes for one session from position 0, tokens `first` and later.
std::vector<double> SoftmaxAttentionReference(const SoftmaxAttentionShape& shape,
                                              const SoftmaxAttentionInput& input, size_t first = 0);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_SOFTMAX_ATTENTION_REFERENCE_H_
