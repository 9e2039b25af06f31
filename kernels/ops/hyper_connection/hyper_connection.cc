// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/ops/hyper_connection/hyper_connection.h"

#include <algorithm>

#include "kernels/base/parallel.h"
#include "kernels/device/device_operations.h"

namespace rivulet {

void SumStreams(const float* weights, size_t stride, const float* streams, size_t n, size_t hidden,
                float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = weights[0] * streams[i];
  for (size_t s = 1; s < n; ++s) {
    const float weight = weights[s * stride];
    const float* stream = streams + s * hidden;
    for (size_t i = 0; i < count; ++i) to[i] += weight * stream[i];
  }
}

void SpreadToStreams(ConstFloatMatrix x, FloatMatrix streams, ThreadPool& pool) {
  ParallelRows(pool, x.rows, streams.columns, [&](size_t t) {
    for (size_t first = 0; first < streams.columns; first += x.columns) {
      std::copy_n(x.row(t), x.columns, streams.row(t) + first);
    }
  });
}

void MeanOfStreams(ConstFloatMatrix streams, FloatMatrix x, ThreadPool& pool) {
  const size_t n = streams.columns / x.columns;
  const float ones[kMostStreams] = {1, 1, 1, 1, 1, 1, 1, 1};
  ParallelRows(pool, x.rows, streams.columns, [&](size_t t) {
    SumStreams(ones, 1, streams.row(t), n, x.columns, x.row(t), x.columns);
    for (size_t i = 0; i < x.columns; ++i) x.row(t)[i] /= static_cast<float>(n);
  });
}

void EnqueueSpread(Device& device, ConstFloatMatrix x, FloatMatrix streams) {
  for (size_t first = 0; first < streams.columns; first += x.columns) {
    device.CopyColumns(x, streams.Columns(first, x.columns));
  }
}

void EnqueueMean(Device& device, ConstFloatMatrix streams, FloatMatrix x) {
  device.CollapseStreams({.form = StreamForm::kMean,
                          .streams = static_cast<uint32_t>(streams.columns / x.columns),
                          .x = streams,
                          .y = x});
}

Operand EnqueueStreamNorm(const DeviceStep& step, ConstFloatMatrix streams, size_t width,
                          std::span<const float> weight, float eps) {
  const auto columns = static_cast<uint32_t>(streams.columns);
  const Operand y = step.workspace->TakeOperand(streams.rows, columns);
  step.device->Finish({.o = streams,
                       .width = columns,
                       .padded = columns,
                       .norm_width = static_cast<uint32_t>(width),
                       .weight = step.device->Constant(weight),
                       .weight_period = columns,
                       .eps = eps,
                       .y = y});
  return y;
}

}  // namespace rivulet
