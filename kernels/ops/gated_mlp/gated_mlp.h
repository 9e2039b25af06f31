// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The feed-forward block y = down(silu(gate(x)) · up(x)) (SwiGLU; docs/mixers.md#names-and-blocks).
// Bits and threading: feed_forward.h.
#ifndef RIVULET_KERNELS_OPS_GATED_MLP_GATED_MLP_H_
#define RIVULET_KERNELS_OPS_GATED_MLP_GATED_MLP_H_

#include "kernels/ops/feed_forward/feed_forward.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

class GatedMlp : public FeedForward {
 public:
  // gate_up: [2 * intermediate, hidden], gate rows first. down: [hidden, intermediate].
  GatedMlp(Linear gate_up, Linear down);

  // Temporaries [T, 2 * intermediate].
  void Apply(ConstFloatMatrix x, FloatMatrix y, Workspace& workspace,
             ThreadPool& pool) const override;
  void Enqueue(const DeviceStep& step, const Operand& x, FloatMatrix y) const override;
  bool runs_on_device() const override { return true; }

  const Linear& gate_up() const { return gate_up_; }
  const Linear& down() const { return down_; }

 private:
  Linear gate_up_;
  Linear down_;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_GATED_MLP_GATED_MLP_H_
