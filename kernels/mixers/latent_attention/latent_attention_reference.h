// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Attention over latents in fp64 (docs/mixers.md#latent-attention). That the layer around it
// computes what expanded keys and values give: vectors/. For tests; quadratic in the number of
// tokens.
#ifndef RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_REFERENCE_H_
#define RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_REFERENCE_H_

#include <functional>
#include <vector>

#include "kernels/mixers/latent_attention/latent_attention_config.h"

namespace rivulet {

// Whether token t sees the earlier token s, or itself.
using Sees = std::function<bool(size_t t, size_t s)>;

// The sums of latents that the recurrence writes, [T * H·R] for one session from position 0:
// softmax over the t' <= t that t sees of q_t,h · key_t' , times the latents. q [T, H·padded (R +
// P)] is absorbed and scaled, key [T, padded (R + P)] the latent and the shared key side by side.
std::vector<double> LatentAttentionReference(const SoftmaxAttentionShape& shape, ConstFloatMatrix q,
                                             ConstFloatMatrix key, const Sees& sees);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_REFERENCE_H_
