// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/base/status.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_config.h"
#include "kernels/mixers/log_linear_mamba2/log_linear_mamba2_recurrence.h"
#include "kernels/mixers/mamba2/mamba2_frame.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

class LogLinearMamba2Layer : public Mixer {
 public:
  LogLinearMamba2Layer(const Mamba2Config& config, uint32_t levels, const MixerSource& source)
      : layout_(source.options.fold_interval),
        max_tokens_(LevelMaxTokens(levels, source.options.level_overflow)),
        frame_(config, config.heads * levels, source, layout_),
        weights_(config.heads, levels, source.parameters),
        recurrence_(
            LogLinearMamba2Declaration(Mamba2ShapeOf(config, source.options.state_dtype), levels,
                                       TakeMamba2Constants(config, source.parameters)),
            layout_) {}

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return max_tokens_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    Mamba2Frame::Result projected = frame_.Project(step, x);
    projected.input.levels = weights_.Apply(step, projected.extra);
    frame_.Output(step, RunRecurrence(step, recurrence_, projected.input), projected.z, y);
    return absl::OkStatus();
  }

 private:
  StateLayout layout_;
  uint64_t max_tokens_;
  Mamba2Frame frame_;
  LevelWeights weights_;
  SumRecurrence recurrence_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LogLinearMamba2Config& config,
                                                 const MixerSource& source) {
  const Mamba2Config& c = config.mamba2;
  const size_t other_rows = 2 * c.inner() + 2 * c.groups * c.state_size + c.heads;
  RIVULET_ASSIGN_OR_RETURN(
      const uint32_t levels,
      FindLevels(config.max_levels, {"in_proj.weight", other_rows, c.heads}, source.parameters));
  return std::make_unique<LogLinearMamba2Layer>(config.mamba2, levels, source);
}

}  // namespace rivulet
