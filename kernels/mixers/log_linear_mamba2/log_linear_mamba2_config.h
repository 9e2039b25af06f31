// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A log-linear Mamba-2 layer (docs/mixers.md#log-linear-mamba-2).
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_CONFIG_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_CONFIG_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/mixers/mamba2/mamba2_config.h"
#include "kernels/mixers/mixer.h"

namespace rivulet {

struct LogLinearMamba2Config {
  Mamba2Config mamba2 = {};  // with one group
  uint32_t max_levels = 0;   // 0: as many as the tensor L has
};

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LogLinearMamba2Config& config,
                                                 const MixerSource& source);

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_MAMBA2_LOG_LINEAR_MAMBA2_CONFIG_H_
