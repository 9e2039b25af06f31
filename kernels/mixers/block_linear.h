// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// A stage of layers (layer_stages.h): a linear map of its own for each block of columns, such as
// each head. All of them have K inputs and N outputs:
//
//   y_b = W_b x_b + bias_b
//
// Threading: constant after construction; a step belongs to one thread.
#ifndef RIVULET_KERNELS_MIXERS_BLOCK_LINEAR_H_
#define RIVULET_KERNELS_MIXERS_BLOCK_LINEAR_H_

#include <cstddef>
#include <vector>

#include "kernels/base/linear_source.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_step.h"
#include "kernels/mixers/parameter_source.h"
#include "kernels/ops/linear/linear.h"
#include "kernels/recurrence/layer_step.h"

namespace rivulet {

class BlockLinear {
 public:
  BlockLinear() = default;  // no blocks
  // A source for each block, [N, K] each. They need not outlive the call.
  BlockLinear(const std::vector<LinearSource>& blocks, size_t inputs, ParameterSource& parameters);

  // Block b reads x's columns from b · x_step on and writes y's from b · y_step on; x_step >= K,
  // y_step >= N. x and y must not overlap.
  void Apply(const LayerStep& step, ConstFloatMatrix x, size_t x_step, FloatMatrix y,
             size_t y_step) const;
  // x_step is a multiple of 16, with zeros from K on.
  void Enqueue(const DeviceStep& step, const Operand& x, size_t x_step, FloatMatrix y,
               size_t y_step) const;

 private:
  size_t count_ = 0;
  std::vector<Linear> maps_;  // on the CPU, of each block
  Linear all_;                // on a device, [count · N, K]
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_MIXERS_BLOCK_LINEAR_H_
