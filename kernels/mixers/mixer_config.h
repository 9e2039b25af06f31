// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The list of mixers: a config is one of their structs, and MakeMixer makes the layer that it
// describes. A config comes from model_loader, which reads and validates config.json, or from C++.
#ifndef RIVULET_KERNELS_MIXERS_MIXER_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_MIXER_CONFIG_H_

#include <memory>
#include <variant>

#include "absl/status/statusor.h"
#include "kernels/mixers/anna/anna_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/gated_convolution/gated_convolution_config.h"
#include "kernels/mixers/gla/gla_config.h"
#include "kernels/mixers/h3/h3_config.h"
#include "kernels/mixers/hla/hla_config.h"
#include "kernels/mixers/kda/kda_config.h"
#include "kernels/mixers/latent_attention/latent_attention_config.h"
#include "kernels/mixers/lightning_attention/lightning_attention_config.h"
#include "kernels/mixers/linear_attention/linear_attention_config.h"
#include "kernels/mixers/mamba/mamba_config.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/retnet/retnet_config.h"
#include "kernels/mixers/rg_lru/rg_lru_config.h"
#include "kernels/mixers/rwkv6/rwkv6_config.h"
#include "kernels/mixers/rwkv7/rwkv7_config.h"
#include "kernels/mixers/shared_transformer/shared_transformer_config.h"
#include "kernels/mixers/softmax_attention/softmax_attention_config.h"

namespace rivulet {

// A line for each mixer. Its struct comes with an overload of MakeLayer.
using MixerConfig = std::variant<SoftmaxAttentionConfig,    //
                                 LinearAttentionConfig,     //
                                 LightningAttentionConfig,  //
                                 GlaConfig,                 //
                                 DeltaRuleConfig,           //
                                 RetNetConfig,              //
                                 Mamba2Config,              //
                                 HlaConfig,                 //
                                 AnnaConfig,                //
                                 MambaConfig,               //
                                 H3Config,                  //
                                 GatedConvolutionConfig,    //
                                 RgLruConfig,               //
                                 KdaConfig,                 //
                                 LatentAttentionConfig,     //
                                 Rwkv6Config,               //
                                 Rwkv7Config,               //
                                 SharedTransformerConfig>;

// INVALID_ARGUMENT when options.state_dtype cannot hold this mixer's sums, or when the shapes of
// the tensors contradict the config; it names the key or the tensor and the remedy. Missing tensors
// do not fail here; see ParameterSource.
absl::StatusOr<std::unique_ptr<Mixer>> MakeMixer(const MixerConfig& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_MIXER_CONFIG_H_
