// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// Products with e4m3 weights (DeviceLinear::float8): y = scale ∘ (x Wᵀ) + b. Weights are widened to
// bf16, which is exact, on their way into the same chains of k16 steps as those of products.cu, so
// every form here and a product of bf16 weights with the same numbers have the same bits before the
// scale.
#ifndef RIVULET_KERNELS_DEVICE_FP8_PRODUCTS_H_
#define RIVULET_KERNELS_DEVICE_FP8_PRODUCTS_H_

#include <cstdint>

#include "kernels/base/tensor_view.h"
#include "kernels/device/device_types.h"

namespace rivulet::cuda {

struct LaunchContext;

// Rows of weights have a multiple of this many numbers.
constexpr uint32_t kFloat8Alignment = 128;

// Any number of rows from 1 on, where neither LaunchFloat8Tokens nor the library takes the product.
void LaunchFloat8Product(const DeviceLinear& linear, const Operand& x, FloatMatrix y,
                         const LaunchContext& context);

// wide [outputs, stride] = the weights as bf16, without the scale.
void LaunchWiden(const DeviceLinear& linear, uint16_t* wide, const LaunchContext& context);
// y = scale ∘ y + b, of `rows` rows.
void LaunchScale(const DeviceLinear& linear, uint32_t rows, FloatMatrix y,
                 const LaunchContext& context);

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_FP8_PRODUCTS_H_
