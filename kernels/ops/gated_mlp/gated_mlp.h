// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The feed-forward block y = down(silu(gate(x)) · up(x)) (SwiGLU; docs/mixers.md#names-and-blocks),
// also with another function than silu, with multipliers (Falcon-H1), and with gate and up clamped
// (GLM-5.3-Flash).
// Bits and threading: feed_forward.h.
#ifndef RIVULET_KERNELS_OPS_GATED_MLP_GATED_MLP_H_
#define RIVULET_KERNELS_OPS_GATED_MLP_GATED_MLP_H_

#include "kernels/base/activation_kind.h"
#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

// y = output_multiplier · down(f(gate_multiplier · gate(x)) · up(x))
// With a limit: gate_multiplier · gate(x) is at most that, up(x) within ± that.
struct GatedMlpForm {
  Activation f = Activation::kSilu;
  float gate_multiplier = 1;
  float output_multiplier = 1;
  float limit = 0;  // 0: none

  bool plain() const { return gate_multiplier == 1 && output_multiplier == 1 && limit == 0; }
};

class GatedMlp : public FeedForward {
 public:
  // gate_up: [2 * intermediate, hidden], gate rows first. down: [hidden, intermediate].
  GatedMlp(Linear gate_up, Linear down, const GatedMlpForm& form = {});

  // Temporaries [T, 2 * intermediate].
  void Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const override;
  // The output's multiplier is one of the down map's inputs where that has no bias.
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override { return true; }

  const Linear& gate_up() const { return gate_up_; }
  const Linear& down() const { return down_; }

 private:
  Operand EnqueueGate(const DeviceStep& step, ConstFloatMatrix gate, ConstFloatMatrix up,
                      float multiplier) const;

  Linear gate_up_;
  Linear down_;
  GatedMlpForm form_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_GATED_MLP_GATED_MLP_H_
