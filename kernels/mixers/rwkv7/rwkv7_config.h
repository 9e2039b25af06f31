// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A layer of RWKV-7's time mixing (docs/mixers.md#rwkv-7). Its channel mixing is a feed-forward
// block (kernels/ops/channel_mixing).
#ifndef RIVULET_KERNELS_MIXERS_RWKV7_RWKV7_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_RWKV7_RWKV7_CONFIG_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

// The ranks of the layer's maps through few numbers.
struct Rwkv7Ranks {
  size_t decay = 0;
  size_t rate = 0;   // of a, the share of a key that is replaced
  size_t value = 0;  // of the share of the first layer's values; not in the first layer
  size_t gate = 0;
};

struct Rwkv7Config {
  // groups = heads. Its state_dtype is set from MixerOptions.
  HeadShape shape = {};
  Rwkv7Ranks ranks = {};
  // Whether this is the model's first layer of its kind: it leaves its values in
  // LayerStep::handed_on, and all later ones mix them into theirs.
  bool first = true;
  // fla's two norms of a removed key: x / √(Σx² + 1e-6), or x / max(√Σx², 1e-12).
  bool fused_norm = true;
  float norm_eps = 1e-5f;  // of the norm of each head's output, which is given D times as much
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const Rwkv7Config& config,
                                                 const MixerSource& source);

// The recurrence: q is RWKV's r, a = -κ and b = κ ∘ a's rate.
//
//   u_t = a_t S_{t-1}    S_t = diag(e^{g_t}) S_{t-1} + k_tᵀ v_t + b_tᵀ u_t    o_t = q_t S_t
RecurrenceDeclaration Rwkv7Declaration(const HeadShape& shape);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RWKV7_RWKV7_CONFIG_H_
