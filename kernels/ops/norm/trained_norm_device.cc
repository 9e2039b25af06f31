// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/device.h"
#include "kernels/device/device_operations.h"
#include "kernels/ops/norm/trained_norm.h"

namespace rivulet {

void TrainedNorm::Enqueue(Device& device, AddNormCall call) const {
  call.weight = device.Constant({weight_.data(), weight_.size()});
  call.bias = device.Constant({bias_.data(), bias_.size()});
  call.eps = eps_;
  device.AddNorm(call);
}

void TrainedNorm::SetUpdateNorm(Device& device, AddNormCall& call) const {
  call.update_weight = device.Constant({weight_.data(), weight_.size()});
  call.update_bias = device.Constant({bias_.data(), bias_.size()});
  call.update_eps = eps_;
}

}  // namespace rivulet
