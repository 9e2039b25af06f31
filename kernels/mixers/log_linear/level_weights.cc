// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear/level_weights.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/recurrence/fenwick.h"

namespace rivulet {
namespace {

// Both public code bases build their models with this many, for 16384 tokens.
constexpr uint32_t kPublicLevels = 15;

// The levels that the projection's rows are enough for; 0: unknown, since it has another shape.
size_t ProjectedLevels(const LevelProjection& projection, const ParameterSource& parameters) {
  if (!parameters.Has(projection.name)) return 0;
  const std::vector<size_t> shape = parameters.Shape(projection.name);
  if (shape.size() != 2 || shape[0] <= projection.other_rows) return 0;
  const size_t rows = shape[0] - projection.other_rows;
  return rows % projection.heads == 0 ? rows / projection.heads : 0;
}

}  // namespace

absl::StatusOr<uint32_t> FindLevels(uint32_t max_levels, const LevelProjection& projection,
                                    const ParameterSource& parameters) {
  if (!parameters.Has("L")) return max_levels != 0 ? max_levels : kPublicLevels;
  const std::vector<size_t> shape = parameters.Shape("L");
  const size_t levels = shape.size() == 2 ? shape[1] : 0;
  if (levels < 1 || levels > kMaxLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor L has ", shape.size(), " dimensions and ", levels,
                     " levels: it must be [num_heads, levels] with 1 to ", kMaxLevels, " levels"));
  }
  if (max_levels != 0 && max_levels != levels) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_levels is ", max_levels, ": the wrong level count, tensor L has ", levels,
                     " levels: correct the config, or leave the key out"));
  }
  const size_t projected = ProjectedLevels(projection, parameters);
  if (projected != 0 && projected != levels) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor L has ", levels, " levels, but ", projection.name, " computes ",
                     projected, ": one of the two tensors belongs to another checkpoint"));
  }
  return static_cast<uint32_t>(levels);
}

uint64_t LevelMaxTokens(uint32_t levels, LevelOverflow overflow) {
  return levels == 0 || overflow == LevelOverflow::kClamp ? UINT64_MAX : FenwickCapacity(levels);
}

LevelWeights::LevelWeights(size_t heads, uint32_t levels, ParameterSource& parameters) {
  if (levels != 0) scale_ = parameters.TakeVector("L", {heads, levels});
}

ConstFloatMatrix LevelWeights::Apply(const LayerStep& step, ConstFloatMatrix dl) const {
  if (scale_.empty()) return {};
  return MapRows(step, dl, columns(), [&](const float* logits, float* lambda) {
    for (size_t i = 0; i < columns(); ++i) lambda[i] = scale_[i] * logits[i];
    Activate(Activation::kSoftplus, lambda, lambda, columns());
  });
}

ConstFloatMatrix LevelWeights::OnDevice(const DeviceStep& step, RowPreparation& rows,
                                        ConstFloatMatrix dl) const {
  if (scale_.empty()) return {};
  return rows.Numbers(dl, {.f = Activation::kSoftplus,
                           .multiplier = step.device->Constant({scale_.data(), scale_.size()})});
}

}  // namespace rivulet
