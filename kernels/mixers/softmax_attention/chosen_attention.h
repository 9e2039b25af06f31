// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Softmax attention of each token over the pools that were chosen for it, and over the tokens
// behind the last full pool (docs/mixers.md#attention-over-chosen-pools). It is attend_span.h over
// the seen tokens side by side, as if there were no others: spans, blocks and groups are counted
// among them. So a token's bits depend on the token, the numbers of its pools, and what they hold.
//
// Reads nothing but the seen tokens. Pools of 16 tokens are read where they lie; smaller ones are
// copied together first.
#ifndef RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_CHOSEN_ATTENTION_H_
#define RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_CHOSEN_ATTENTION_H_

#include <span>

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"
#include "kernels/mixers/softmax_attention/key_value_pages.h"

namespace rivulet {

// out [T, H*E] for rows that are in `pages` already. REQUIRES: input.chosen.size is 16 or divides
// it; no token sees nothing.
void AttendToChosen(const SoftmaxAttentionShape& shape, const KeyValuePages& pages,
                    size_t fold_interval, std::span<const Segment> segments,
                    const SoftmaxAttentionInput& input, FloatMatrix out, Workspace& workspace,
                    ThreadPool& pool);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SOFTMAX_ATTENTION_CHOSEN_ATTENTION_H_
