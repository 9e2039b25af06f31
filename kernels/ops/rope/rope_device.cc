// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"
#include "kernels/device/pool_operations.h"
#include "kernels/ops/rope/rope.h"

namespace rivulet {

void Rope::Enqueue(const DeviceStep& step, FloatMatrix x, size_t head_stride) const {
  step.device->Rotate({.rows = step.rows,
                       .x = x,
                       .heads = static_cast<uint32_t>(x.columns / head_stride),
                       .head_stride = static_cast<uint32_t>(head_stride),
                       .frequencies = step.device->Constant(frequencies_),
                       .half = static_cast<uint32_t>(frequencies_.size()),
                       .amplitude = amplitude_});
}

void Rope::SetRotation(Device& device, PoolKeysCall& call) const {
  call.frequencies = device.Constant(frequencies_);
  call.half = static_cast<uint32_t>(frequencies_.size());
  call.amplitude = amplitude_;
}

}  // namespace rivulet
