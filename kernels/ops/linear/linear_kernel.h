// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// The arguments that Linear::Apply passes to the SIMD code, which is compiled once per target.
// Private to this folder.
#ifndef RIVULET_KERNELS_OPS_LINEAR_LINEAR_KERNEL_H_
#define RIVULET_KERNELS_OPS_LINEAR_LINEAR_KERNEL_H_

#include <cstddef>

#include "kernels/base/tensor_view.h"

namespace rivulet {

// Panels and tokens of one task at most. Enough tokens that the weights, which each task reads from
// memory once, cost little beside the sums.
inline constexpr size_t kTaskPanels = 8;
inline constexpr size_t kTaskTokens = 96;

struct LinearArguments {
  ConstFloatMatrix x;  // [T, inputs]
  FloatMatrix y;       // [T, outputs]
  size_t inputs;
  size_t outputs;
  const float* bias;  // [padded outputs] or null
};

// Rows [token, end_token), at most kTaskTokens, of panels [panel, end_panel): one task's share.
struct LinearRange {
  size_t token;
  size_t end_token;
  size_t panel;
  size_t end_panel;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_OPS_LINEAR_LINEAR_KERNEL_H_
