// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// An H3 layer (docs/mixers.md#h3). The public checkpoints have no config.json: its keys are ours,
// and model_loader/convert_h3.py writes them.
#ifndef RIVULET_KERNELS_MIXERS_H3_H3_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_H3_H3_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

// How the diagonal SSM's continuous time becomes steps.
enum class Discretisation : uint8_t { kBilinear, kZeroOrderHold };

struct H3Config {
  size_t heads = 0;       // Hs = hidden / head_dim
  size_t head_dim = 0;    // hd; public checkpoints have 1
  size_t state_size = 0;  // N, even: the window of the shift SSM, twice the modes of the diagonal
  size_t ssms = 0;        // n_ssm, divides heads: head h has the poles of row h mod n_ssm
  Discretisation discretisation = Discretisation::kBilinear;

  size_t channels() const { return heads * head_dim; }  // the layer's width D
  size_t modes() const { return state_size / 2; }       // M
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const H3Config& config, const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_H3_H3_CONFIG_H_
