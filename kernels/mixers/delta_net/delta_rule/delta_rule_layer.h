// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The layer of DeltaNet and Gated DeltaNet: projection, recurrence, RMSNorm of each head and gate,
// output projection. The two differ in what their configs say.
//
// Threading: as Mixer says.
#ifndef RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_LAYER_H_
#define RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_LAYER_H_

#include "kernels/mixers/delta_net/delta_rule/delta_rule_config.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_projection.h"
#include "kernels/mixers/delta_net/delta_rule/delta_rule_recurrence.h"
#include "kernels/mixers/layer_stages.h"
#include "kernels/mixers/mixer.h"
#include "kernels/recurrence/sum_recurrence.h"

namespace rivulet {

class DeltaRuleLayer : public Mixer {
 public:
  DeltaRuleLayer(const DeltaRuleConfig& config, const MixerSource& source);

  const StateLayout& state_layout() const override { return layout_; }
  absl::Status Forward(const MixerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;

 private:
  StateLayout layout_;
  DeltaRuleProjection projection_;
  SumRecurrence recurrence_;
  HeadOutput output_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_DELTA_NET_DELTA_RULE_DELTA_RULE_LAYER_H_
