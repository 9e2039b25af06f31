// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/token_shift/token_shift.h"

#include "kernels/base/aligned_buffer.h"
#include "kernels/base/parallel.h"
#include "kernels/device/device_operations.h"

namespace rivulet {
namespace {

// [channels, 2]: 1 for the token before, -1 for the token.
AlignedBuffer<float> DifferenceWeights(size_t channels) {
  AlignedBuffer<float> weight(2 * channels);
  for (size_t i = 0; i < channels; ++i) {
    weight[2 * i] = 1.0f;
    weight[2 * i + 1] = -1.0f;
  }
  return weight;
}

}  // namespace

TokenShift::TokenShift(size_t channels, StateLayout& layout)
    : convolution_(DifferenceWeights(channels), {}, channels, 2, /*silu=*/false, "shift", layout) {}

FloatMatrix TokenShift::Difference(const LayerStep& step, ConstFloatMatrix x) const {
  const FloatMatrix difference = step.workspace->Take(x.rows, x.columns);
  convolution_.Apply(step.segments, step.state, x, difference, *step.pool);
  return difference;
}

std::array<Operand, kMostMixtures> TokenShift::Enqueue(const DeviceStep& step, const Operand& x,
                                                       std::span<const AlignedBuffer<float>> mixes,
                                                       FloatMatrix difference) const {
  const DeviceConvolution planes = convolution_.OnDevice(*step.device, {});
  TokenShiftCall call{.rows = step.rows,
                      .slots = step.slots,
                      .channels = planes.channels,
                      .x = x,
                      .mixtures = static_cast<uint32_t>(mixes.size()),
                      .padded = planes.weight_stride,
                      .before_offset = planes.before_offset,
                      .tail_offset = planes.tail_offset,
                      .difference = difference};
  std::array<Operand, kMostMixtures> result = {};
  for (size_t m = 0; m < mixes.size(); ++m) {
    result[m] = step.workspace->TakeOperand(x.rows, planes.channels);
    call.mix[m] = step.device->Constant({mixes[m].data(), mixes[m].size()});
    call.y[m] = result[m];
  }
  step.device->TokenShift(call);
  return result;
}

void MixShifted(ConstFloatMatrix x, ConstFloatMatrix difference, const float* mix, FloatMatrix y,
                ThreadPool& pool) {
  ParallelRows(pool, x.rows, x.columns, [&](size_t t) {
    const float* own = x.row(t);
    const float* step = difference.row(t);
    float* to = y.row(t);
    for (size_t i = 0; i < x.columns; ++i) to[i] = own[i] + step[i] * mix[i];
  });
}

}  // namespace rivulet
