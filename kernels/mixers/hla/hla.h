// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The mixer of model_type "hla": higher-order linear attention (arXiv 2510.27258;
// docs/mixers.md#hla, 12). `hla_variant` chooses second order (symmetric) or AHLA (asymmetric).
#ifndef RIVULET_KERNELS_MIXERS_HLA_HLA_H_
#define RIVULET_KERNELS_MIXERS_HLA_HLA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// Tensors: q_proj, k_proj, v_proj, o_proj .weight, o_norm.weight [E]; g_proj.weight with
// use_output_gate; decay_logit [H] with use_decay; {q,k,v}_conv1d.weight [channels, 1, W] with
// use_short_conv. INVALID_ARGUMENT as in MixerFactory.
absl::StatusOr<std::unique_ptr<Mixer>> MakeHla(const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_HLA_HLA_H_
