// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The second half of a block: what is added to each token's residual stream after the mixer. The
// forward pass knows this interface alone; the kinds are kernels/ops/gated_mlp, two_layer_mlp,
// mixture_of_experts and channel_mixing. Only the last looks at another token, the one before, and
// so has state.
//
// Bits: a row of y depends on its row of x alone, and with state on the rows before it in its
// session; not on the other rows of the call nor on the number of threads. Threading: constant
// after construction; one Apply at a time for each pool.
#ifndef RIVULET_KERNELS_OPS_FEED_FORWARD_FEED_FORWARD_H_
#define RIVULET_KERNELS_OPS_FEED_FORWARD_FEED_FORWARD_H_

#include "kernels/base/check.h"
#include "kernels/base/tensor_view.h"
#include "kernels/recurrence/layer_step.h"
#include "kernels/recurrence/state.h"

namespace rivulet {

struct DeviceStep;
struct Operand;

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  // The planes that one session needs, as a mixer's; null: none.
  virtual const StateLayout* state_layout() const { return nullptr; }

  // y [T, hidden] from x [T, hidden], which must not overlap. Temporaries come from the step's
  // workspace, which the caller resets. Without a state_layout its segments and state are not read.
  virtual void Apply(const LayerStep& step, ConstFloatMatrix x, FloatMatrix y) const = 0;

  // The same on the device that its maps are packed for. REQUIRES: runs_on_device().
  virtual void Enqueue(const DeviceStep& /*step*/, const Operand& /*x*/, FloatMatrix /*y*/) const {
    RIVULET_CHECK(false, "this feed-forward has no form for a device");
  }
  virtual bool runs_on_device() const { return false; }
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_FEED_FORWARD_FEED_FORWARD_H_
