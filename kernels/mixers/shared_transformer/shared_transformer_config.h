// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Zamba2's hybrid layer (transformers `zamba2`; README.md).
#ifndef RIVULET_KERNELS_MIXERS_SHARED_TRANSFORMER_SHARED_TRANSFORMER_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_SHARED_TRANSFORMER_SHARED_TRANSFORMER_CONFIG_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/base/activation_kind.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/softmax_attention/softmax_attention_config.h"

namespace rivulet {

struct SharedTransformerConfig {
  // Prefix of the tensors that layers share, as in the file: "model.layers.6.shared_transformer.".
  std::string shared;
  SoftmaxAttentionConfig attention;  // inputs: twice the residual stream's width
  Mamba2Config mamba;
  size_t intermediate = 0;  // of the MLP
  Activation f = Activation::kGelu;
  bool bias = false;        // of the MLP's maps
  size_t adapter = 0;       // which of the shared block's adapters are this layer's
  size_t adapter_rank = 0;  // of the MLP's adapter
  float norm_eps = 1e-5f;   // of the norms between the parts
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const SharedTransformerConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_SHARED_TRANSFORMER_SHARED_TRANSFORMER_CONFIG_H_
