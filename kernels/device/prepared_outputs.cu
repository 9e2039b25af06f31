// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#include "kernels/device/prepared_outputs.cuh"

#include <algorithm>
#include <cmath>

namespace rivulet::cuda {
namespace {

constexpr bool Even(size_t x) { return x % 2 == 0; }

bool IsFlat(const PreparedPart& part) {
  return part.norm == DeviceHeadNorm::kNone && part.padded == part.width && part.head_stride == 0 &&
         part.multiplier == nullptr && part.rate == nullptr && part.scale == 1;
}

bool IsConvolvedAlone(const PreparedPart& part) {
  return part.f == Activation::kIdentity && part.bias == nullptr && std::isinf(part.low) &&
         std::isinf(part.high) && Even(static_cast<size_t>(part.channel));
}

bool IsServed(const DeviceConvolution& convolution) {
  return convolution.window == 4 && convolution.silu && convolution.gate == nullptr &&
         Even(convolution.weight_stride);
}

// False: the part is of other numbers, or does not begin at a pair of columns.
bool TakePart(const PreparedPart& part, FloatMatrix outputs, PreparedOutputs::Part& taken) {
  const ptrdiff_t first = part.x - outputs.data, columns = ptrdiff_t{part.heads} * part.width;
  if (first < 0 || first + columns > static_cast<ptrdiff_t>(outputs.columns)) return false;
  if (!Even(first) || !Even(columns) || !Even(part.y_stride)) return false;
  if (part.x_stride != outputs.stride) return false;
  taken = {.first = static_cast<uint32_t>(first),
           .end = static_cast<uint32_t>(first + columns),
           .y = part.y,
           .y_stride = part.y_stride,
           .channel = part.channel,
           .bias = part.bias,
           .f = part.f,
           .low = part.low,
           .high = part.high};
  return true;
}

}  // namespace

bool PreparesOutputs(const PrepareCall& call, FloatMatrix outputs, PreparedOutputs& prepared) {
  const DeviceConvolution& convolution = call.convolution;
  if (!call.rows.single || call.part_count > PreparedOutputs::kMostParts) return false;
  prepared = {.segments = call.rows.segments,
              .slots = call.slots,
              .weight = convolution.weight,
              .bias = convolution.bias,
              .before_offset = convolution.before_offset,
              .tail_offset = convolution.tail_offset,
              .channels = convolution.weight_stride,
              .fold_interval = call.fold_interval,
              .count = call.part_count};
  for (uint32_t p = 0; p < call.part_count; ++p) {
    const PreparedPart& part = call.parts[p];
    const bool convolved = part.channel >= 0;
    if (!IsFlat(part) || !TakePart(part, outputs, prepared.parts[p])) return false;
    if (convolved && !(IsServed(convolution) && IsConvolvedAlone(part))) return false;
    if (convolved && part.x - part.channel != convolution.x) return false;
  }
  return true;
}

}  // namespace rivulet::cuda
