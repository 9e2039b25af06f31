// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device.h"
#include "kernels/device/device_operations.h"
#include "kernels/ops/norm/trained_norm.h"

namespace rivulet {

void TrainedNorm::Enqueue(Device& device, FloatMatrix x, ConstFloatMatrix update,
                          const Operand& y) const {
  device.AddNorm({.x = x,
                  .update = update,
                  .weight = device.Constant({weight_.data(), weight_.size()}),
                  .bias = device.Constant({bias_.data(), bias_.size()}),
                  .eps = eps_,
                  .y = y});
}

}  // namespace rivulet
