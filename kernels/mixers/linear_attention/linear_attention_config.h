// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A linear attention layer (fla `linear_attn`; docs/mixers.md#linear-attention).
#ifndef RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_CONFIG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/linear_attention/feature_map.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/declaration.h"

namespace rivulet {

struct LinearAttentionConfig {
  size_t heads = 0;
  size_t kv_heads = 0;                // divides heads
  size_t key_dim = 0;                 // d, a head's width before φ
  size_t value_dim = 0;               // e
  FeatureMapConfig feature_map = {};  // of width d; at most kMaxKeyDim features
  bool tie_feature_map = false;
  bool norm_q = false;
  bool norm_k = false;
  bool normalised = false;  // norm_feature_map: divide by φq·z
  bool affine = true;       // norm.weight exists
  float norm_eps = 1e-6f;
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LinearAttentionConfig& config,
                                                 const MixerSource& source);

// Linear attention (Katharopoulos et al. 2020) as one sum without decay:
//
//   S_t = S_{t-1} + φk_tᵀ v_t     z_t = z_{t-1} + φk_t
//   o_t = φq_t S_t                normalised: o_t = φq_t S_t / (φq_t·z_t + 1e-10)
//
// Query heads of a group share k and v. q and k are features φ(·) already, and q is scaled.
RecurrenceDeclaration LinearAttentionDeclaration(const HeadShape& shape, bool normalised);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LINEAR_ATTENTION_LINEAR_ATTENTION_CONFIG_H_
