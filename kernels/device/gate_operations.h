// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The gate of an MLP with multipliers (kernels/ops/gated_mlp), and gates of numbers that no product
// reads. A plain gate on the way into a product is a Finish (gated.h).
//
// Bits: a number depends on its gate, its other factor and the call's constants alone.
#ifndef RIVULET_KERNELS_DEVICE_GATE_OPERATIONS_H_
#define RIVULET_KERNELS_DEVICE_GATE_OPERATIONS_H_

#include "kernels/base/activation_kind.h"
#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet {

// y [T, columns] = multiplier · f(gate_multiplier · gate) · x, zeros in y's padding. With a limit
// gate_multiplier · gate is at most that, and x within ± that; NaN stays NaN. The result is y or,
// where y has no data, `numbers`, which may be x.
struct GateCall {
  ConstFloatMatrix gate, x;  // [T, columns]
  Activation f = Activation::kSilu;
  float gate_multiplier = 1;
  float multiplier = 1;
  float limit = 0;  // 0: none
  Operand y = {};
  FloatMatrix numbers = {};  // [T, columns]
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_DEVICE_GATE_OPERATIONS_H_
