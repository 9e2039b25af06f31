// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/base/status.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_projection.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_config.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_recurrence.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

class LogLinearGatedDeltaNetLayer : public Mixer {
 public:
  LogLinearGatedDeltaNetLayer(const DeltaRuleConfig& config, uint32_t levels,
                              const MixerSource& source)
      : layout_(source.options.fold_interval),
        max_tokens_(LevelMaxTokens(levels, source.options.level_overflow)),
        projection_(config, source, layout_),
        weights_(config.shape.value_heads, levels, source.parameters),
        recurrence_(
            LogLinearGatedDeltaNetDeclaration(DeltaRuleDeclaration(config.shape).shape, levels),
            layout_),
        output_(DeltaRuleOutput(config), source) {}

  const StateLayout& state_layout() const override { return layout_; }
  uint64_t max_tokens() const override { return max_tokens_; }

  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override {
    DeltaRuleProjection::Result projected = projection_.Apply(step, x);
    projected.input.levels = weights_.Apply(step, projected.levels);
    output_.Apply(step, RunRecurrence(step, recurrence_, projected.input), projected.gate, y);
    return absl::OkStatus();
  }

 private:
  StateLayout layout_;
  uint64_t max_tokens_;
  DeltaRuleProjection projection_;
  LevelWeights weights_;
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLayer(const LogLinearGatedDeltaNetConfig& config,
                                                 const MixerSource& source) {
  DeltaRuleConfig delta_rule = config.delta_rule;
  RIVULET_ASSIGN_OR_RETURN(
      const uint32_t levels,
      FindLevels(config.max_levels, {"l_proj.weight", 0, delta_rule.shape.value_heads},
                 source.parameters));
  delta_rule.level_columns = delta_rule.shape.value_heads * levels;
  delta_rule.shape.state_dtype = source.options.state_dtype;
  return std::make_unique<LogLinearGatedDeltaNetLayer>(delta_rule, levels, source);
}

}  // namespace rivulet
