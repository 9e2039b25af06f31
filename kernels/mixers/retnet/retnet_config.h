// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A retention layer (fla `retnet`; docs/mixers.md#retnet).
#ifndef RIVULET_KERNELS_MIXERS_RETNET_RETNET_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_RETNET_RETNET_CONFIG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/mixers/fla_output.h"
#include "kernels/mixers/mixer.h"
#include "kernels/ops/activation/activation.h"

namespace rivulet {

struct RetNetConfig {
  size_t heads = 0;
  size_t kv_heads = 0;                             // divides heads
  size_t key_dim = 0;                              // of one head; even, at most kMaxKeyDim
  size_t value_dim = 0;                            // of one head
  Activation feature_map = Activation::kIdentity;  // applied to q and k, before the rotation
  bool use_short_conv = false;
  size_t conv_size = 4;  // from 2 to kMaxConvolutionWindow
  bool conv_bias = false;
  FlaOutput output = {};
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const RetNetConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_RETNET_RETNET_CONFIG_H_
