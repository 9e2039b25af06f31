// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/base/status.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_projection.h"
#include "kernels/mixers/gated_deltanet/gated_deltanet_config.h"
#include "kernels/mixers/json_fields.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/log_linear/level_weights.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet.h"
#include "kernels/mixers/log_linear_gated_deltanet/log_linear_gated_deltanet_recurrence.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {
namespace {

// The public code scales queries by D^{-1/2} and level weights by its inverse, so neither is.
absl::StatusOr<DeltaRuleConfig> ParseConfig(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(DeltaRuleConfig config,
                           ParseGatedDeltaNetConfig(source.config, source.options));
  if (config.shape.group() != 1) {
    return FieldError(source.config, "num_v_heads",
                      "log-linear Gated DeltaNet has no grouped value heads: leave it out");
  }
  if (config.tensors != DeltaRuleTensors::kFla) {
    return FieldError(source.config, "tensor_layout",
                      "log-linear Gated DeltaNet has fla's tensors only: leave it out");
  }
  config.scale_queries = false;
  return config;
}

class LogLinearGatedDeltaNetLayer : public Mixer {
 public:
  LogLinearGatedDeltaNetLayer(const DeltaRuleConfig& config, uint32_t levels,
                              const MixerSource& source)
      : max_tokens_(LevelMaxTokens(levels, source.options.level_overflow)),
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

absl::StatusOr<std::unique_ptr<Mixer>> MakeLogLinearGatedDeltaNet(const MixerSource& source) {
  RIVULET_ASSIGN_OR_RETURN(DeltaRuleConfig config, ParseConfig(source));
  RIVULET_ASSIGN_OR_RETURN(const uint32_t levels, FindLevels(source));
  config.level_columns = config.shape.value_heads * levels;
  return std::make_unique<LogLinearGatedDeltaNetLayer>(config, levels, source);
}

}  // namespace rivulet
