// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/base/status.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_config.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_recurrence.h"
#include "kernels/mixers/mamba2/mamba2_layer.h"

namespace rivulet {

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LogLinearMamba2Config& config,
                                                 const MixerSource& source) {
  const Mamba2Config& c = config.mamba2;
  const size_t other_rows = 2 * c.inner() + 2 * c.groups * c.state_size + c.heads;
  RIVULET_ASSIGN_OR_RETURN(
      const uint32_t levels,
      FindLevels(config.max_levels, {"in_proj.weight", other_rows, c.heads}, source.parameters));
  return std::make_unique<Mamba2Layer>(
      c,
      LogLinearMamba2Declaration(Mamba2ShapeOf(c, source.options.state_dtype), levels,
                                 TakeMamba2Constants(c, source.parameters)),
      source);
}

}  // namespace rivulet
