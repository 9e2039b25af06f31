// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of pool_selection_recurrence.h on rows of Dp floats, Dp a multiple of 16 with
// zeros in the padding. Each number has one order of operations, whatever is computed beside it.
// Threading: pure functions.
#ifndef RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SCORES_H_
#define RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SCORES_H_

#include <cstddef>

namespace rivulet {

// key [Dp] of a pool of `tokens` keys, gates and biases [tokens, Dp].
void MeanOfPool(const float* keys, const float* gates, const float* biases, size_t tokens,
                size_t padded, float* key);

// The plain mean of `tokens` keys.
void PlainMeanOfPool(const float* keys, size_t tokens, size_t padded, float* key);

// scores [pools] of one token: q [heads, Dp], weights [heads], keys [pools, Dp].
void ScorePools(const float* q, const float* weights, size_t heads, const float* keys, size_t pools,
                size_t padded, float* scores);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_POOL_SELECTION_POOL_SCORES_H_
