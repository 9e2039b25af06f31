// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of multi-head latent attention (docs/mixers.md#latent-attention), without positions,
// over all tokens or over chosen ones (docs/mixers.md#attention-over-chosen-pools).
#ifndef RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_CONFIG_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/pool_selection/pool_selection_config.h"
#include "kernels/mixers/softmax_attention/softmax_attention_recurrence.h"

namespace rivulet {

struct LatentAttentionConfig {
  size_t heads = 0;        // H
  size_t latent = 0;       // R, at most kMostAttendedValues: what is kept of a token
  size_t key_dim = 0;      // N: of a head's key, expanded from the latent
  size_t shared_key = 0;   // P: of a key that all heads share, beside it; may be 0
  size_t value_dim = 0;    // V: of a head's value, expanded from the latent
  size_t query_rank = 0;   // of the queries' low-rank map; 0: one map
  bool bias = false;       // of the maps to the latents, and of the output
  float norm_eps = 1e-6f;  // of the latents' norms
  float scale = 0;         // of a score; above 0
  // The tokens that a query sees (../pool_selection); pool 0: all before it.
  PoolSelectionConfig selection = {};
  // Sees what the last layer chose that has a selection of its own (LayerStep::handed_on).
  bool takes_choice = false;

  size_t query() const { return heads * (key_dim + shared_key); }  // columns of all queries
  // What the recurrence sees: one key-value head, whose values are the first R numbers of its keys.
  SoftmaxAttentionShape Absorbed(DType dtype) const {
    return {heads, 1, latent + shared_key, 0, dtype, latent};
  }
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LatentAttentionConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LATENT_ATTENTION_LATENT_ATTENTION_CONFIG_H_
