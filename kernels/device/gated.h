// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Activation and gate on the way into a product.
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_DEVICE_GATED_H_
#define RIVULET_KERNELS_DEVICE_GATED_H_

#include <cstdint>

#include "kernels/device/device_operations.h"
#include "kernels/device/device_step.h"

namespace rivulet {

// The input of a product: y [T, columns] = f(x) ∘ gate_f(gate), or f(x) without a gate.
inline Operand Gated(const DeviceStep& step, ConstFloatMatrix x, ConstFloatMatrix gate,
                     Activation f = Activation::kIdentity, Activation gate_f = Activation::kSilu) {
  constexpr uint32_t kNumbersOfAWarp = 256;
  const auto columns = static_cast<uint32_t>(x.columns);
  const Operand y = step.workspace->TakeOperand(x.rows, x.columns);
  step.device->Finish({.o = x,
                       .gate = gate,
                       .heads = 1,
                       .width = columns,
                       .padded = columns,
                       .norm_width = kNumbersOfAWarp,
                       .order = FinishOrder::kGateOnly,
                       .f = f,
                       .gate_f = gate_f,
                       .y = y});
  return y;
}

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_GATED_H_
