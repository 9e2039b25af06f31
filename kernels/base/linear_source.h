// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#ifndef RIVULET_KERNELS_BASE_LINEAR_SOURCE_H_
#define RIVULET_KERNELS_BASE_LINEAR_SOURCE_H_

#include <cstddef>

#include "kernels/base/dtype.h"

namespace rivulet {

// One [outputs, inputs] matrix to pack, row-major, of any DType, anywhere in memory (a mapped file:
// `data` need not be aligned). `bias` [outputs] fp32 or null.
struct LinearSource {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  size_t outputs = 0;
  const float* bias = nullptr;
};

}  // namespace rivulet

#endif  // RIVULET_KERNELS_BASE_LINEAR_SOURCE_H_
