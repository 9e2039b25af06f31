// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The level weights of the log-linear mixers, λ_t = softplus(L ∘ dl_t) [H, Lv]
// (docs/mixers.md#log-linear-mamba-2): the tensor L, whose shape alone says how many levels a layer
// has, and what that means for the length of a session.
//
// Threading: constant after construction.
#ifndef RIVULET_KERNELS_MIXERS_LOG_LINEAR_LEVEL_WEIGHTS_H_
#define RIVULET_KERNELS_MIXERS_LOG_LINEAR_LEVEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/base/aligned_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/mixers/mixer.h"
#include "kernels/mixers/row_preparation.h"

namespace rivulet {

// The projection that computes dl: tensor `name`, whose last heads · Lv rows are dl's.
struct LevelProjection {
  const char* name;
  size_t other_rows;  // before those
  size_t heads;
};

// Lv, from the shape [heads, Lv] of the tensor L. INVALID_ARGUMENT when the shape is impossible, or
// contradicts the config's max_levels (0: none given) or the projection. Without the tensor:
// max_levels, or 15 as in the public code; taking it then fails.
absl::StatusOr<uint32_t> FindLevels(uint32_t max_levels, const LevelProjection& projection,
                                    const ParameterSource& parameters);

// Mixer::max_tokens of a layer with `levels` levels; 0: a layer without levels.
uint64_t LevelMaxTokens(uint32_t levels, LevelOverflow overflow);

class LevelWeights {
 public:
  // Takes L; without levels, nothing.
  LevelWeights(size_t heads, uint32_t levels, ParameterSource& parameters);

  size_t columns() const { return scale_.size(); }  // H*Lv

  // λ [T, H*Lv] of dl [T, H*Lv], both (head, level), in the step's workspace; null data without
  // levels.
  ConstFloatMatrix Apply(const LayerStep& step, ConstFloatMatrix dl) const;
  // The same on a device, as a part of the token's row.
  ConstFloatMatrix OnDevice(const DeviceStep& step, RowPreparation& rows,
                            ConstFloatMatrix dl) const;

 private:
  AlignedBuffer<float> scale_;  // L
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_LOG_LINEAR_LEVEL_WEIGHTS_H_
