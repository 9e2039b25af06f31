// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device.h"
#include "kernels/ops/linear/linear.h"

namespace rivulet {

void Linear::Enqueue(Device& device, const Operand& x, FloatMatrix y) const {
  device.Product(device_, x, y);
}

}  // namespace rivulet
