// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/log_linear/level_weights.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/ops/activation/activation.h"
#include "kernels/recurrence/fenwick.h"

namespace rivulet {
namespace {

// Both public code bases build their models with this many, for 16384 tokens.
constexpr size_t kPublicLevels = 15;

}  // namespace

absl::StatusOr<uint32_t> FindLevels(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(const size_t said,
                           SizeField(source.config, "max_levels", 0, 1, kMaxLevels));
  if (!source.parameters.Has("L")) {
    return static_cast<uint32_t>(said != 0 ? said : kPublicLevels);
  }
  const std::vector<size_t> shape = source.parameters.Shape("L");
  const size_t levels = shape.size() == 2 ? shape[1] : 0;
  if (levels < 1 || levels > kMaxLevels) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor L has ", shape.size(), " dimensions and ", levels,
                     " levels: it must be [num_heads, levels] with 1 to ", kMaxLevels, " levels"));
  }
  if (said != 0 && said != levels) {
    return FieldError(source.config, "max_levels",
                      absl::StrCat("the wrong level count, tensor L has ", levels,
                                   " levels: correct the config, or leave the key out"));
  }
  return static_cast<uint32_t>(levels);
}

uint64_t LevelMaxTokens(uint32_t levels, LevelOverflow overflow) {
  return overflow == LevelOverflow::kClamp ? UINT64_MAX : FenwickCapacity(levels);
}

LevelWeights::LevelWeights(size_t heads, uint32_t levels, ParameterSource& parameters)
    : scale_(parameters.TakeVector("L", {heads, levels})) {}

ConstFloatMatrix LevelWeights::Apply(const MixerStep& step, ConstFloatMatrix dl) const {
  return MapRows(step, dl, columns(), [&](const float* logits, float* lambda) {
    for (size_t i = 0; i < columns(); ++i) lambda[i] = scale_[i] * logits[i];
    Activate(Activation::kSoftplus, lambda, lambda, columns());
  });
}

}  // namespace rivulet
