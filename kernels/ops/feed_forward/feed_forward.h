// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The second half of a block: what is added to each token's residual stream without a look at any
// other token. The forward pass knows this interface alone; the kinds are kernels/ops/gated_mlp,
// two_layer_mlp and mixture_of_experts.
//
// Bits: a row of y depends on its row of x alone, not on the other rows of the call nor on the
// number of threads. Threading: constant after construction; one Apply at a time for each pool.
#ifndef RIVULET_KERNELS_OPS_FEED_FORWARD_FEED_FORWARD_H_
#define RIVULET_KERNELS_OPS_FEED_FORWARD_FEED_FORWARD_H_

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/check.h"
#include "kernels/base/tensor_view.h"
#include "kernels/base/thread_pool.h"

namespace rivulet {

struct DeviceStep;
struct Operand;

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  // y [T, hidden] from x [T, hidden], which must not overlap. Temporaries come from `workspace`,
  // which the caller resets.
  virtual void Apply(ConstFloatMatrix x, FloatMatrix y, Workspace& workspace,
                     ThreadPool& pool) const = 0;

  // The same on the device that its maps are packed for. REQUIRES: runs_on_device().
  virtual void Enqueue(const DeviceStep& /*step*/, const Operand& /*x*/, FloatMatrix /*y*/) const {
    RIVULET_CHECK(false, "this feed-forward has no form for a device");
  }
  virtual bool runs_on_device() const { return false; }
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_FEED_FORWARD_FEED_FORWARD_H_
