// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/mixers/gated_convolution/gated_convolution.h"

#include <utility>

#include "kernels/base/parallel.h"
#include "kernels/device/device_operations.h"

namespace rivulet {
namespace {

// y = a ∘ b; y may be one of them.
void Multiply(ConstFloatMatrix a, ConstFloatMatrix b, FloatMatrix y, ThreadPool& pool) {
  ParallelRows(pool, y.rows, y.columns, [&](size_t t) {
    const float* left = a.row(t);
    const float* right = b.row(t);
    float* product = y.row(t);
    for (size_t i = 0; i < y.columns; ++i) product[i] = left[i] * right[i];
  });
}

}  // namespace

GatedConvolution::GatedConvolution(AlignedBuffer<float> weight, AlignedBuffer<float> bias,
                                   size_t channels, size_t window, StateLayout& layout)
    : convolution_(std::move(weight), std::move(bias), channels, window, /*silu=*/false, "conv",
                   layout) {}

void GatedConvolution::Run(const LayerStep& step, const GatedConvolutionInput& input,
                           FloatMatrix y) const {
  const FloatMatrix gated = step.workspace->Take(y.rows, y.columns);
  Multiply(input.b, input.x, gated, *step.pool);
  convolution_.Apply(step.segments, step.state, gated, y, *step.pool);
  Multiply(input.c, y, y, *step.pool);
}

DeviceConvolution GatedConvolution::OnDevice(Device& device, ConstFloatMatrix x,
                                             ConstFloatMatrix b) const {
  DeviceConvolution call = convolution_.OnDevice(device, x);
  call.gate = b.data;
  call.gate_stride = static_cast<uint32_t>(b.stride);
  return call;
}

}  // namespace rivulet
