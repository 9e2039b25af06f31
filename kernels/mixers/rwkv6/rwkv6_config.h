// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The time mixing of RWKV-6 "Finch" (Peng et al. 2024, arXiv 2404.05892), in fla's layout: see
// README.md. Its other half, channel mixing, is a feed-forward block (kernels/ops/channel_mixing).
#ifndef RIVULET_KERNELS_MIXERS_RWKV6_RWKV6_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_RWKV6_RWKV6_CONFIG_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct Rwkv6Config {
  // groups = heads. Its state_dtype is set from MixerOptions.
  HeadShape shape = {};
  size_t mixture_rank = 32;  // of the map of each mixture
  size_t decay_rank = 64;
  float norm_eps = 1e-5f;  // of the norm of each head's output
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Rwkv6Config& config,
                                                 const MixerSource& source);

// The recurrence without the bonus of the token's own row: q is RWKV's r.
//
//   o_t = q_t S_{t-1}    S_t = diag(e^{g_t}) S_{t-1} + k_tᵀ v_t
RecurrenceDeclaration Rwkv6Declaration(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RWKV6_RWKV6_CONFIG_H_
