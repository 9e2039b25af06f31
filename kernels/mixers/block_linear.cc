// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/block_linear.h"

#include "kernels/device/device_operations.h"

namespace rivulet {

BlockLinear::BlockLinear(const std::vector<LinearSource>& blocks, size_t inputs,
                         ParameterSource& parameters)
    : count_(blocks.size()) {
  if (parameters.packs_on_device()) {
    all_ = parameters.PackRows(blocks, inputs);
    return;
  }
  for (const LinearSource& block : blocks) maps_.push_back(parameters.PackRows({block}, inputs));
}

void BlockLinear::Apply(const LayerStep& step, ConstFloatMatrix x, size_t x_step, FloatMatrix y,
                        size_t y_step) const {
  const StageTimer timer(step.times, Stage::kProjection);
  for (size_t b = 0; b < maps_.size(); ++b) {
    maps_[b].Apply(x.Columns(b * x_step, maps_[b].inputs()),
                   y.Columns(b * y_step, maps_[b].outputs()), *step.pool);
  }
}

void BlockLinear::Enqueue(const DeviceStep& step, const Operand& x, size_t x_step, FloatMatrix y,
                          size_t y_step) const {
  step.device->ProductByBlocks({.linear = all_.on_device(),
                                .blocks = static_cast<uint32_t>(count_),
                                .x = x,
                                .x_step = static_cast<uint32_t>(x_step),
                                .y = y,
                                .y_step = static_cast<uint32_t>(y_step)});
}

}  // namespace rivulet
